# fish completion for fs

set -l shapes qwen3-0.6b qwen3-1.7b qwen3-4b tiny-odd
set -l models synthetic:$shapes

function __fs_in
    __fish_seen_subcommand_from $argv
end

complete -c fs -f
complete -c fs -n __fish_use_subcommand -a generate -d "Continue a prompt, or answer it as a chat"
complete -c fs -n __fish_use_subcommand -a logits -d "Scores for the token after a prompt"
complete -c fs -n __fish_use_subcommand -a layer-diff -d "Two runs compared operation by operation"
complete -c fs -n __fish_use_subcommand -a eval -d "How well a model predicts a text, and what quantisation costs"
complete -c fs -n __fish_use_subcommand -a bench -d "How fast a model runs, and what limits it"
complete -c fs -n __fish_use_subcommand -a tokenize -d "Text to token ids"
complete -c fs -n __fish_use_subcommand -a detokenize -d "Token ids to text"
complete -c fs -n __fish_use_subcommand -a inspect -d "What a checkpoint holds"
complete -c fs -n __fish_use_subcommand -a quantize -d "Write a model as one GGUF file"
complete -c fs -n __fish_use_subcommand -a synth -d "Write a synthetic model"
complete -c fs -n __fish_use_subcommand -a devices -d "The CUDA cards of this machine"
complete -c fs -n __fish_use_subcommand -l version -d "Print the version"
complete -c fs -s h -l help -d "Print help"

# every command
complete -c fs -n "__fs_in generate logits layer-diff eval bench tokenize detokenize inspect quantize synth devices" -s q -l quiet -d "Only the answer and errors"
complete -c fs -n "__fs_in generate logits layer-diff eval bench tokenize detokenize inspect" -s m -l model -rF -a "$models" -d Checkpoint
complete -c fs -n "__fs_in generate logits layer-diff eval bench tokenize detokenize inspect devices" -l json -d "One JSON object"

# text in
complete -c fs -n "__fs_in generate logits layer-diff tokenize" -s p -l prompt -x -d "The text"
complete -c fs -n "__fs_in generate logits layer-diff eval tokenize detokenize" -s f -l file -rF -d "Read from a file"
complete -c fs -n "__fs_in generate logits layer-diff eval tokenize detokenize" -l stdin -d "Read from standard input"
complete -c fs -n "__fs_in generate logits layer-diff eval" -l tokens -x -d "Token ids instead of text"

# a model that runs
complete -c fs -n "__fs_in generate logits eval bench" -l backend -x -a "auto cuda cpu reference cuda-emulated" -d "What computes"
complete -c fs -n "__fs_in generate logits eval bench" -l isa -x -a "auto portable avx2 avx512 avx512bf16" -d "Instruction set of the cpu backend"
complete -c fs -n "__fs_in generate logits eval bench" -l dtype -x -a "auto f32 f16 bf16 q8_0 int4" -d "Weight format in memory"
complete -c fs -n "__fs_in generate logits eval bench" -l kv -x -a "f32 f16 bf16" -d "Format of keys and values in the cache"
complete -c fs -n "__fs_in generate logits eval bench" -l act -x -a "f32 bf16 int8" -d "What activations are rounded to in products"
complete -c fs -n "__fs_in generate logits eval bench" -l step -x -a "graph persistent" -d "How cuda runs a decode step"
complete -c fs -n "__fs_in generate logits layer-diff eval bench quantize" -s t -l threads -x -d "Processor threads"
complete -c fs -n "__fs_in generate logits layer-diff eval" -s c -l ctx -l ctx-size -x -d "Tokens of context at most"
complete -c fs -n "__fs_in generate logits layer-diff eval bench" -l prefill-chunk -x -d "Tokens of a prompt that run at once"
complete -c fs -n "__fs_in generate logits layer-diff eval bench" -l device -x -d "CUDA card"
complete -c fs -n "__fs_in generate logits layer-diff eval bench" -l sync -d "Wait for every CUDA kernel"
complete -c fs -n "__fs_in devices" -l backend -x -a "cuda cuda-emulated" -d "Whose cards"
complete -c fs -n "__fs_in generate logits" -l temp -l temperature -x -d "Temperature; 0 is greedy"
complete -c fs -n "__fs_in generate logits" -l topk -l top-k -x -d "Keep the N most likely tokens"
complete -c fs -n "__fs_in generate logits" -l topp -l top-p -x -d "Keep the likeliest tokens that reach P"
complete -c fs -n "__fs_in generate logits" -l minp -l min-p -x -d "Keep tokens with this share of the best"
complete -c fs -n "__fs_in generate logits" -l repeat-penalty -l repetition-penalty -x -d "Divide logits of tokens seen"
complete -c fs -n "__fs_in generate logits" -l presence-penalty -x -d "Subtract from logits of tokens seen"

# generate
complete -c fs -n "__fs_in generate synth" -s s -l seed -x -d "Decides every draw or weight"
complete -c fs -n "__fs_in generate layer-diff" -l prompts -rF -d "Many prompts, a JSON object a line"
complete -c fs -n "__fs_in generate bench" -o np -l parallel -x -d "Prompts or sequences at once"
complete -c fs -n "__fs_in generate" -l speculate -d "Guess what follows, keep what is right"
complete -c fs -n "__fs_in generate" -s n -l n-predict -x -d "Tokens at most"
complete -c fs -n "__fs_in generate" -l stop -x -d "End before this text"
complete -c fs -n "__fs_in generate" -l chat -d "Apply the chat template"
complete -c fs -n "__fs_in generate" -l system -x -d "The chat's system message"
complete -c fs -n "__fs_in generate" -l think -d "Let the model think first"
complete -c fs -n "__fs_in generate" -l no-think -d "Answer without thinking"
complete -c fs -n "__fs_in generate" -l ignore-eos -d "Go on after end-of-text tokens"

# logits
complete -c fs -n "__fs_in logits layer-diff" -l top -x -d "How many to list"
complete -c fs -n "__fs_in logits" -l all-positions -d "Log-probability of every prompt token"
complete -c fs -n "__fs_in logits" -s o -l out -rF -d "Write all logits"
complete -c fs -n "__fs_in logits layer-diff" -l record -rF -d "Write values inside the forward pass"
complete -c fs -n "__fs_in logits layer-diff" -l taps -x -d "Points inside the forward pass" \
    -a "embed attn_norm q k v attn_out attn_resid mlp_norm mlp_act block_out final_norm logits"
complete -c fs -n "__fs_in logits layer-diff" -l layers -x -d "Layers of them"

# layer-diff
complete -c fs -n "__fs_in layer-diff" -s a -l a -x -a "reference cpu cuda cuda-emulated golden dump:" -d "Side A, taken to be right"
complete -c fs -n "__fs_in layer-diff" -s b -l b -x -a "auto cuda cpu reference cuda-emulated golden dump:" -d "Side B"
complete -c fs -n "__fs_in layer-diff" -l inject -d "Feed every operation of B with A's values"
complete -c fs -n "__fs_in layer-diff" -l decode -x -d "Also N steps after the prompt"
complete -c fs -n "__fs_in layer-diff" -l self -d "Token by token against one pass"
complete -c fs -n "__fs_in layer-diff" -l greedy -x -d "Generate N tokens on both sides"
complete -c fs -n "__fs_in layer-diff" -l atol -x -d "Absolute tolerance"
complete -c fs -n "__fs_in layer-diff" -l rtol -x -d "Relative tolerance"
complete -c fs -n "__fs_in layer-diff" -l all -d "List every tap beyond tolerance"
complete -c fs -n "__fs_in layer-diff" -l force -d "Another model or prompt all the same"
complete -c fs -n "__fs_in layer-diff" -l svg -rF -d "Draw a heat map"

# eval
complete -c fs -n "__fs_in eval" -F
complete -c fs -n "__fs_in eval" -l against -x -a "reference cpu cuda cuda-emulated" -d "A second model to hold this one against"
# bench
complete -c fs -n "__fs_in bench" -s p -l n-prompt -x -d "Tokens of a prompt"
complete -c fs -n "__fs_in bench" -s n -l n-gen -x -d "Tokens to decode"
complete -c fs -n "__fs_in bench" -s d -l n-depth -x -d "Tokens that are there before"
complete -c fs -n "__fs_in bench" -s r -l repetitions -x -d "Times that a test is repeated"
complete -c fs -n "__fs_in bench" -l no-warmup -d "Count the first run too"
complete -c fs -n "__fs_in bench" -l roofline -d "Measure what the machine allows"
complete -c fs -n "__fs_in bench" -l no-roofline -d "Do not measure what the machine allows"
complete -c fs -n "__fs_in bench" -s o -l output -x -a "md csv json jsonl" -d "How rows are printed"
complete -c fs -n "__fs_in bench" -l output-err -x -a "none md csv json jsonl" -d "The same on standard error as well"
complete -c fs -n "__fs_in bench" -l kernels -d "Also time each kernel of a decode step"
complete -c fs -n "__fs_in bench" -l plot -rF -d "Draw tokens a second against depth"

# tokenize
complete -c fs -n "__fs_in tokenize" -l pieces -d "A table of ids and pieces"
complete -c fs -n "__fs_in tokenize" -l count -d "Only how many"
complete -c fs -n "__fs_in tokenize" -l no-special -d "Special tokens are plain text"

# inspect, quantize, synth
complete -c fs -n "__fs_in inspect quantize" -F -a "$models"
complete -c fs -n "__fs_in inspect" -l verify -d "Compare sha256 with the published files"
complete -c fs -n "__fs_in synth" -F -a "$shapes"
complete -c fs -n "__fs_in quantize" -l dtype -x -a "q8_0 bf16 f16 f32" -d "Format of the matrices"
complete -c fs -n "__fs_in quantize synth" -l force -d "Replace files that are there"
