"""Easy questions to a language model at its default settings: how many it answers right.

`python -m test.benchmark.questions [MODEL] [--rounds N]` prints the wrong answers, and how many are
right with each seed, and the median. A reply is right if it contains one of the accepted texts as
whole words, whatever the case.

Easy is what a child learns in the first years of school. The questions are fixed by rules, which
were written before any model was asked, so none is there because a model knows it:

- the capitals of the G7 and BRIC countries, and of Spain;
- the opposites of the twelve most frequent English adjectives (of the Oxford English Corpus) that
  have one in one word, without those that are the opposite of an earlier one;
- n + n, and the number after n, for n from 1 to 6;
- the animals that bark, meow, moo and quack, the colours of four things, the day and the month
  after the first ones, and how many of them a week and a year have.

Answers of SmolLM2-135M in Q4_1 that are right, of 48, with five seeds, or three of ours with
temperature 1 (llama.cpp of October 2026, on the same file and the same tokens of the prompts):

    greedy                        31               llama.cpp: 31
    temperature 0.2, top-p 0.9    27 to 32         llama.cpp: 29 to 30
    temperature 1                 11 to 21         llama.cpp: 11 to 22

With LLM_EXACT=1, the 2,406 greedy tokens are those of the largest logits in float64, so what is
wrong is the model's. Of its 17 wrong greedy answers, llama.cpp, which rounds activations to 8 bits,
has 14 wrong too.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from statistics import median

from tinygrad.apps.language.chat.conversation import Conversation, ReplyOptions
from tinygrad.apps.language.cli.arguments import parse_arguments
from tinygrad.apps.language.cli.main import load

# several times what an answer needs; without a limit, a model may repeat itself for minutes
MAX_TOKENS = 300

# a question, then the accepted answers
QUESTIONS = """
What is the capital of the United States? | Washington
What is the capital of Canada? | Ottawa
What is the capital of the United Kingdom? | London
What is the capital of France? | Paris
What is the capital of Germany? | Berlin
What is the capital of Italy? | Rome, Roma
What is the capital of Japan? | Tokyo
What is the capital of Brazil? | Brasília, Brasilia
What is the capital of Russia? | Moscow
What is the capital of India? | New Delhi, Delhi
What is the capital of China? | Beijing
What is the capital of Spain? | Madrid
What is the opposite of good? | bad, evil, poor
What is the opposite of new? | old, used
What is the opposite of first? | last, final
What is the opposite of long? | short, brief
What is the opposite of little? | big, large, great, much, a lot
What is the opposite of right? | wrong, left
What is the opposite of high? | low
What is the opposite of different? | same, similar, alike, identical
What is the opposite of large? | small, little, tiny
What is the opposite of early? | late
What is the opposite of young? | old, aged, elderly
What is the opposite of few? | many, a lot, several
What is 1 + 1? | 2, two
What is 2 + 2? | 4, four
What is 3 + 3? | 6, six
What is 4 + 4? | 8, eight
What is 5 + 5? | 10, ten
What is 6 + 6? | 12, twelve
What number comes after 1? | 2, two
What number comes after 2? | 3, three
What number comes after 3? | 4, four
What number comes after 4? | 5, five
What number comes after 5? | 6, six
What number comes after 6? | 7, seven
Which animal barks? | dog, dogs
Which animal meows? | cat, cats
Which animal moos? | cow, cows
Which animal quacks? | duck, ducks
What color is the sky? | blue
What color is grass? | green
What color is snow? | white
What color is a banana? | yellow
Which day comes after Monday? | Tuesday
Which month comes after January? | February
How many days are in a week? | 7, seven
How many months are in a year? | 12, twelve
"""


def questions() -> list[tuple[str, list[str]]]:
    """The questions with their accepted answers."""
    lines = (line.split(" | ") for line in QUESTIONS.strip().splitlines())
    return [(question, accepted.split(", ")) for question, accepted in lines]


def is_right(reply: str, accepted: list[str]) -> bool:
    """Whether a reply has one of the accepted answers as whole words."""
    return any(re.search(rf"\b{re.escape(x)}\b", reply, re.IGNORECASE) for x in accepted)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m test.benchmark.questions", description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2:135m")
    parser.add_argument("--rounds", type=int, default=1, help="with seeds 0, 1, ...")
    arguments = parser.parse_args()
    loaded = load(parse_arguments(["-m", arguments.model]))
    asked = questions()
    counts = []
    for seed in range(arguments.rounds):
        right = 0
        for question, accepted in asked:
            sampling = replace(loaded.sampling, seed=seed)
            conversation = Conversation(loaded, ReplyOptions(sampling, MAX_TOKENS))
            reply = "".join(delta.content for delta in conversation.reply(question))
            if is_right(reply, accepted):
                right += 1
            else:
                print(f"  {question} {' '.join(reply.split())[:100]}")
        print(f"seed {seed}: {right} of {len(asked)} right", flush=True)
        counts.append(right)
    print(f"median {median(counts):g} of {len(asked)}")


if __name__ == "__main__":
    main()
