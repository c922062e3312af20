"""Records every tap of a Hugging Face Qwen3 model's forward pass (fp32, eager) for `fs layer-diff --a dump:FILE`.

    python tools/dump_hf.py MODEL -o FILE.safetensors "The capital of France is"
    python tools/dump_hf.py MODEL -o FILE.safetensors --tokens 785,6722,315,9625,374

MODEL: a checkpoint directory, a Hugging Face name (downloaded if it is not in the cache) or synthetic:SHAPE[@SEED].
Needs PyTorch and transformers. To bisect a port of your own, write the same tensors from it: names, shapes
and metadata are in tools/hf_taps.py.
"""

import argparse
import pathlib

import hf_taps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("prompt", nargs="?")
    parser.add_argument("--tokens", help="ids instead of a text: 785,6722,315")
    parser.add_argument("-o", "--out", required=True, type=pathlib.Path)
    args = parser.parse_intermixed_args()
    if (args.prompt is None) == (args.tokens is None):
        parser.error("give a prompt or --tokens")

    directory = pathlib.Path(args.model)
    if not args.model.startswith("synthetic:") and not directory.is_dir():
        from huggingface_hub import snapshot_download

        directory = pathlib.Path(snapshot_download(args.model, allow_patterns=["*.json", "*.safetensors", "merges.txt"]))
    source = args.model if args.model.startswith("synthetic:") else directory
    if args.tokens is not None:
        tokens = [int(token) for token in args.tokens.replace(",", " ").split()]
    elif args.model.startswith("synthetic:"):
        parser.error("a synthetic model has no tokenizer: give --tokens")
    else:
        from transformers import AutoTokenizer

        tokens = AutoTokenizer.from_pretrained(directory)(args.prompt, add_special_tokens=False).input_ids
    taps = hf_taps.taps_of(hf_taps.load(source), tokens)
    hf_taps.save(taps, args.out, hf_taps.metadata(args.model, hf_taps.model_hash(args.model, directory), tokens))
    print(f"{args.out}: {len(taps)} taps of {len(tokens)} tokens")


if __name__ == "__main__":
    main()
