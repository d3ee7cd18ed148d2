"""Easy questions to a language model at its default settings: how many it answers right.

`python -m test.benchmark.questions [MODEL] [--rounds N]` prints the wrong answers and the count.
A reply is right if it contains one of the accepted texts, whatever the case.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import replace

from tinygrad.apps.language.chat.conversation import Conversation, ReplyOptions
from tinygrad.apps.language.cli.arguments import parse_arguments
from tinygrad.apps.language.cli.main import load

# several times what an answer needs; without a limit, a model may repeat itself for minutes
MAX_TOKENS = 300

# a question, then the accepted answers
QUESTIONS = """
What is the capital of France? | Paris
What is the capital of Italy? | Rome
What is the capital of Japan? | Tokyo
What is the capital of Germany? | Berlin
What is the capital of Spain? | Madrid
What is the capital of England? | London
What is the capital of Russia? | Moscow
What is the capital of China? | Beijing
What is the capital of Egypt? | Cairo
What is the capital of Greece? | Athens
What is the largest planet of the solar system? | Jupiter
Which planet do we live on? | Earth
Which planet is known as the red planet? | Mars
What is the closest star to Earth? | Sun, Proxima Centauri
What is the chemical formula of water? | H2O, H₂O
What is the chemical symbol of gold? | Au
What gas do plants absorb from the air? | carbon dioxide, CO2
What gas do humans need to breathe? | oxygen
At what temperature in degrees Celsius does water boil? | 100
What force pulls objects towards the Earth? | gravity, gravitation
How many days are in a week? | seven, 7
How many months are in a year? | twelve, 12
How many hours are in a day? | 24, twenty-four
How many minutes are in an hour? | 60, sixty
How many legs does a spider have? | eight, 8
How many legs does a dog have? | four, 4
How many sides does a triangle have? | three, 3
How many continents are there? | seven, 7
What is 2 + 2? | 4, four
What is 5 + 3? | 8, eight
What is 10 minus 4? | 6, six
What is 3 times 3? | 9, nine
What color is the sky on a clear day? | blue
What color is grass? | green
What color do you get by mixing red and white? | pink
What is the opposite of hot? | cold
What is the opposite of up? | down
What is the opposite of big? | small, little, tiny
What animal is known as man's best friend? | dog
Which animal is the largest in the ocean? | whale
What do bees make? | honey
What do cows give us to drink? | milk
Who wrote the play Romeo and Juliet? | Shakespeare
Who painted the Mona Lisa? | Leonardo, da Vinci
Who developed the theory of relativity? | Einstein
Who was the first president of the United States? | Washington
On which continent is Brazil? | South America
What is the tallest mountain in the world? | Everest
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


if __name__ == "__main__":
    main()
