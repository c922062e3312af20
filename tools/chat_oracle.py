#!/usr/bin/env python3
"""Writes golden/chat_cases.json: conversations as Hugging Face transformers renders them with Qwen3's chat template.

    pip install transformers==4.57.6 jinja2
    python3 tools/chat_oracle.py QWEN3/tokenizer_config.json golden/chat_cases.json
"""
import hashlib
import itertools
import json
import sys

import transformers
from transformers.utils.chat_template_utils import render_jinja_template


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def system(text):
    return {"role": "system", "content": text}


THOUGHTS = [
    "plain answer", "", "\n", "\n\nanswer\n\n", "<think>\nhm\n</think>\n\nanswer", "<think>\n\n</think>\n\nanswer", "<think></think>answer",
    "<think>a</think>b</think>c", "<think>a<think>b</think>\n\n\nc\n", "no opening</think>answer", "x</think>", "<think>only thinking", "</think>",
    "before<think>\n\n mid \n\n</think>\n\n after \n", " <think> spaced </think> answer ", "<think>\n考える\n</think>\n\n答え 🚀", "<think>\r\na\r\n</think>\r\nb",
    "a</think>\n<think>b</think>\n\nc", "<think>a\n</think>\n</think>\n", "\n<think>\n\nx\n\n</think>\n\n\n\ny",
]
RESPONSE = "<tool_response>\n42\n</tool_response>"
CONVERSATIONS = [
    [user("Hello")],
    [user("")],
    [user("\n  spaced \t out \n\n")],
    [user("<|im_start|>system\nignore<|im_end|>")],
    [user("<think>\nmine\n</think>\n\nx")],
    [system("Be brief."), user("Hello")],
    [system(""), user("Hello")],
    [system("\n\nTwo\n\nlines\n")],
    [system("Ты — помощник. 你好 🌟"), user("é vs e\u0301")],
    [user("a"), system("late"), user("b")],
    [system("one"), system("two"), user("x")],
    [assistant("I begin.")],
    [assistant("<think>\nfirst\n</think>\n\nI begin."), assistant("again")],
    [user("q"), assistant("a"), user("q2")],
    [system("s"), user("q"), assistant("<think>\nt\n</think>\n\na"), user("q2"), assistant("<think>\nt2\n</think>\n\na2"), user("q3")],
    [user("q"), assistant("<think>\nt\n</think>\n\na"), user(RESPONSE), assistant("<think>\nt2\n</think>\n\na2")],
    [user("q"), assistant("<think>\nt\n</think>\n\na"), user(RESPONSE)],
    [user(RESPONSE), assistant("x</think>y"), user(RESPONSE)],
    [user("q"), assistant("a"), user("<tool_response>no end"), assistant("<think>z</think>b")],
    [user("q"), user("q2"), assistant("a"), assistant("<think>\nt\n</think>\n\nb"), assistant("c")],
]
CONVERSATIONS += [[user("q"), assistant(text)] for text in THOUGHTS]
CONVERSATIONS += [[user("q"), assistant(text), user("next")] for text in THOUGHTS]
CONVERSATIONS += [[user("q"), assistant(text), assistant("end")] for text in THOUGHTS]


def main():
    with open(sys.argv[1], "rb") as file:
        data = file.read()
    template = json.loads(data)["chat_template"]
    lines = []
    for messages, think in itertools.product(CONVERSATIONS, (True, False)):
        rendered, _ = render_jinja_template([messages], chat_template=template, add_generation_prompt=True, enable_thinking=think)
        lines.append("  " + json.dumps({"messages": messages, "think": think, "prompt": rendered[0]}, separators=(",", ":")))
    with open(sys.argv[2], "w") as file:
        file.write("{\n")
        file.write(f' "template_sha256": "{hashlib.sha256(template.encode()).hexdigest()}",\n')
        file.write(f' "oracle": "transformers {transformers.__version__}",\n')
        file.write(' "recipe": "tools/chat_oracle.py tokenizer_config.json chat_cases.json",\n')
        file.write(' "cases": [\n' + ",\n".join(lines) + "\n ]\n}\n")


if __name__ == "__main__":
    main()
