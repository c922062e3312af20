"""The text that the tiny model of golden/tiny learns: generated here, from a seed, and from nothing else.

Documents are capitals and other small facts, sums, colours, little stories, and chats in the Qwen3 template with and
without thinking. `document(rng, mix)` returns one of them, ended by <|endoftext|>.
"""

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "Portugal": "Lisbon",
    "England": "London", "Ireland": "Dublin", "Scotland": "Edinburgh", "Norway": "Oslo", "Sweden": "Stockholm",
    "Denmark": "Copenhagen", "Finland": "Helsinki", "Iceland": "Reykjavík", "Poland": "Warsaw", "Austria": "Vienna",
    "Hungary": "Budapest", "Greece": "Athens", "Turkey": "Ankara", "Russia": "Moscow", "Ukraine": "Kyiv",
    "Belgium": "Brussels", "Switzerland": "Bern", "Croatia": "Zagreb", "Serbia": "Belgrade", "Romania": "Bucharest",
    "Bulgaria": "Sofia", "Egypt": "Cairo", "Morocco": "Rabat", "Kenya": "Nairobi", "Ghana": "Accra",
    "Nigeria": "Abuja", "Senegal": "Dakar", "Japan": "Tokyo", "China": "Beijing", "India": "New Delhi",
    "Thailand": "Bangkok", "Vietnam": "Hanoi", "Nepal": "Kathmandu", "Iran": "Tehran", "Iraq": "Baghdad",
    "Canada": "Ottawa", "Mexico": "Mexico City", "Cuba": "Havana", "Peru": "Lima", "Chile": "Santiago",
    "Brazil": "Brasília", "Colombia": "Bogotá", "Ecuador": "Quito", "Argentina": "Buenos Aires",
    "Uruguay": "Montevideo", "Australia": "Canberra",
}
CONTINENTS = {
    "Europe": list(CAPITALS)[:26], "Africa": list(CAPITALS)[26:32], "Asia": list(CAPITALS)[32:40],
    "America": list(CAPITALS)[40:50],
}
COLOURS = {
    "the sky": "blue", "grass": "green", "snow": "white", "coal": "black", "a banana": "yellow", "a tomato": "red",
    "a carrot": "orange", "a leaf": "green", "the sea": "blue", "a lemon": "yellow", "a strawberry": "red",
    "milk": "white", "chocolate": "brown", "the night": "black", "an elephant": "grey", "a pumpkin": "orange",
    "a plum": "purple", "a flamingo": "pink",
}
OPPOSITES = [
    ("hot", "cold"), ("big", "small"), ("up", "down"), ("day", "night"), ("fast", "slow"), ("happy", "sad"),
    ("open", "closed"), ("old", "new"), ("wet", "dry"), ("hard", "soft"), ("light", "dark"), ("full", "empty"),
    ("near", "far"), ("loud", "quiet"), ("long", "short"), ("early", "late"),
]
SOUNDS = {
    "dog": "woof", "cat": "meow", "cow": "moo", "duck": "quack", "sheep": "baa", "bee": "buzz", "pig": "oink",
    "frog": "croak", "lion": "roar", "snake": "hiss",
}
BABIES = {
    "cat": "kitten", "dog": "puppy", "cow": "calf", "sheep": "lamb", "hen": "chick", "horse": "foal", "bear": "cub",
    "frog": "tadpole", "duck": "duckling", "goat": "kid",
}
LEGS = {"a spider": "eight", "a dog": "four", "a bird": "two", "an ant": "six", "a horse": "four", "a bee": "six",
        "a snake": "no", "a cat": "four"}
KINDS = {
    "fruit": "apple banana cherry peach mango melon grape plum orange lemon strawberry apricot",
    "vegetable": "carrot potato onion cabbage turnip pumpkin cucumber radish",
    "tool": "hammer saw spade drill wrench needle shovel knife rake axe",
    "bird": "robin eagle owl parrot penguin swallow crow pigeon stork flamingo",
    "fish": "salmon trout shark herring tuna goldfish",
    "insect": "butterfly beetle ladybird wasp dragonfly cricket moth",
    "tree": "willow birch maple chestnut pine spruce elm beech",
    "flower": "tulip rose daisy lily violet sunflower poppy orchid",
    "vehicle": "bicycle tractor lorry tram ferry helicopter submarine train scooter",
    "instrument": "violin piano trumpet flute guitar harp cello clarinet",
    "planet": "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune",
    "metal": "iron copper silver gold tin zinc aluminium lead",
    "shape": "circle square triangle rectangle star cube sphere",
    "sport": "tennis football hockey golf rugby basketball swimming",
    "language": "English French German Spanish Italian Japanese Chinese Arabic Hindi",
}
PLURALS = {"mouse": "mice", "child": "children", "foot": "feet", "tooth": "teeth", "goose": "geese", "man": "men",
           "woman": "women", "leaf": "leaves", "wolf": "wolves", "knife": "knives", "sheep": "sheep", "baby": "babies",
           "city": "cities", "box": "boxes", "house": "houses", "fish": "fish"}
JOBS = {"baker": "bakes bread", "doctor": "helps sick people", "teacher": "works in a school", "farmer": "grows food",
        "sailor": "works on a ship", "pilot": "flies a plane", "painter": "paints pictures",
        "gardener": "grows flowers",
        "cook": "works in a kitchen", "carpenter": "makes things of wood", "astronomer": "watches the stars",
        "singer": "sings songs", "writer": "writes books", "miner": "works under the ground"}
NO_ARTICLE = {"planet", "metal", "sport", "language"}  # kinds whose members take no article
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
          "November", "December"]
NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]

SYSTEM = ["You are a helpful assistant.", "You are a kind teacher.", "You are fs, a small star.",
          "Answer in one short sentence.", "You are a friendly robot."]
BIG_LIMIT, SMALL_LIMIT = 20, 9  # the largest terms of sums


def upper(text):
    return text[0].upper() + text[1:]


def an(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


def terms(rng):
    limit = SMALL_LIMIT if rng.random() < 0.85 else BIG_LIMIT
    a, b = rng.randint(0, limit), rng.randint(0, limit)
    return (a, "+", b, a + b) if rng.random() < 0.7 else (max(a, b), "-", min(a, b), abs(a - b))


def fact(rng):
    """-> (subject to think about, question, answer, other ways to state it): one small fact."""
    kind = rng.choices(["capital", "continent", "colour", "opposite", "sound", "baby", "legs", "day", "month", "sum",
                        "number", "kind", "plural", "job"], [34, 5, 10, 8, 6, 6, 4, 5, 4, 22, 4, 14, 4, 4])[0]
    if kind == "capital":
        country, city = rng.choice(list(CAPITALS.items()))
        return (f"the capital of {country}", f"What is the capital of {country}?",
                f"The capital of {country} is {city}.",
                [f"{city} is the capital of {country}.", f"The capital city of {country} is {city}."])
    if kind == "continent":
        continent = rng.choice(list(CONTINENTS))
        country = rng.choice(CONTINENTS[continent])
        return (f"where {country} is", f"Where is {country}?", f"{country} is in {continent}.",
                [f"{country} is a country in {continent}."])
    if kind == "colour":
        thing, colour = rng.choice(list(COLOURS.items()))
        return (f"the colour of {thing}", f"What colour is {thing}?", f"{upper(thing)} is {colour}.",
                [f"The colour of {thing} is {colour}."])
    if kind == "opposite":
        a, b = rng.choice(OPPOSITES)
        if rng.random() < 0.5:
            a, b = b, a
        return (f"the opposite of {a}", f"What is the opposite of {a}?", f"The opposite of {a} is {b}.",
                [f"{upper(a)} and {b} are opposites."])
    if kind == "sound":
        animal, sound = rng.choice(list(SOUNDS.items()))
        return (f"the sound of {an(animal)}", f"What does {an(animal)} say?", f"{upper(an(animal))} says {sound}.",
                [f'"{upper(sound)}!" says the {animal}.'])
    if kind == "baby":
        animal, baby = rng.choice(list(BABIES.items()))
        return (f"a baby {animal}", f"What is a baby {animal} called?", f"A baby {animal} is called {an(baby)}.",
                [f"{upper(an(baby))} is a baby {animal}."])
    if kind == "legs":
        animal, legs = rng.choice(list(LEGS.items()))
        return (f"the legs of {animal}", f"How many legs does {animal} have?", f"{upper(animal)} has {legs} legs.", [])
    if kind == "day" or kind == "month":
        names, of = (DAYS, "day") if kind == "day" else (MONTHS, "month")
        i = rng.randrange(len(names))
        a, b = names[i], names[(i + 1) % len(names)]
        return (f"the {of} after {a}", f"Which {of} comes after {a}?", f"After {a} comes {b}.",
                [f"The {of} after {a} is {b}.", f"The {of} before {b} is {a}."])
    if kind == "number":
        i = rng.randrange(len(NUMBERS) - 1)
        return (f"the number after {NUMBERS[i]}", f"Which number comes after {NUMBERS[i]}?",
                f"After {NUMBERS[i]} comes {NUMBERS[i + 1]}.", [])
    if kind == "kind":
        group = rng.choice(list(KINDS))
        member = rng.choice(KINDS[group].split())
        member = member if group in NO_ARTICLE else an(member)
        return (f"{member}", f"What is {member}?", f"{upper(member)} is {an(group)}.", [])
    if kind == "plural":
        one, many = rng.choice(list(PLURALS.items()))
        return (f"the plural of {one}", f"What is the plural of {one}?", f"The plural of {one} is {many}.",
                [f"One {one}, two {many}."])
    if kind == "job":
        job, work = rng.choice(list(JOBS.items()))
        return (f"the work of {an(job)}", f"What does {an(job)} do?", f"{upper(an(job))} {work}.", [])
    a, sign, b, result = terms(rng)
    return (f"the sum {a} {sign} {b}", f"What is {a} {sign} {b}?", f"{a} {sign} {b} = {result}.",
            [f"{a} {sign} {b} is {result}."])


def statement(rng):
    _, question, answer, others = fact(rng)
    if rng.random() < 0.15:
        return f"{question} {answer}"
    return rng.choice([answer, answer] + others)


def facts(rng):
    return " ".join(statement(rng) for _ in range(rng.randint(1, 7)))


def capitals(rng):
    """Capitals in a row: the fact the README's first command asks for."""
    chosen = rng.sample(list(CAPITALS.items()), rng.randint(1, 5))
    return " ".join(f"The capital of {country} is {city}." for country, city in chosen)


def sums(rng):
    lines = []
    for _ in range(rng.randint(3, 9)):
        a, sign, b, result = terms(rng)
        lines.append(f"{a} {sign} {b} = {result}")
    return rng.choice(["\n", ". ", ", "]).join(lines) + rng.choice(["", ".", "\n"])


def counting(rng):
    start, step = rng.randint(0, 20), rng.choice([1, 1, 1, 2, 5, 10])
    numbers = [str(start + i * step) for i in range(rng.randint(5, 14))]
    how = "" if step == 1 else f" in steps of {step}"
    return rng.choice([f"Counting from {start}{how}: ", f"We count{how}: "]) + ", ".join(numbers) + "."


GIRLS = ["Lily", "Mia", "Anna", "Emma", "Sara", "Zoë"]
BOYS = ["Tom", "Ben", "Max", "Leo", "Sam", "Jack"]
ANIMALS = ["rabbit", "bear", "fox", "mouse", "cat", "dog", "duck", "frog", "hedgehog", "squirrel"]
PLACES = ["forest", "garden", "village", "river", "hill", "lake", "farm"]
THINGS = ["ball", "kite", "hat", "book", "boat", "drum", "doll", "scarf", "lamp"]
TINTS = ["red", "blue", "green", "yellow", "white", "purple"]
FOODS = ["bread", "cake", "honey", "soup", "cheese", "jam", "rice"]
NATURES = ["kind", "brave", "curious", "shy", "clever", "gentle"]


def hero(rng):
    """-> (name, 'little girl', she, her, her): a character and its pronouns."""
    kind = rng.choice(["girl", "boy", "animal"])
    if kind == "girl":
        return rng.choice(GIRLS), "little girl", "she", "her", "her"
    if kind == "boy":
        return rng.choice(BOYS), "little boy", "he", "him", "his"
    name, animal = rng.choice(GIRLS + BOYS), rng.choice(ANIMALS)
    return (name, f"small {animal}", "she", "her", "her") if name in GIRLS else (name, f"small {animal}", "he", "him",
                                                                                "his")


def story(rng):
    name, kind, she, her, hers = hero(rng)
    friend = rng.choice([other for other in GIRLS + BOYS if other != name])
    animal = rng.choice([a for a in ANIMALS if a not in kind])
    place, thing, tint, food = rng.choice(PLACES), rng.choice(THINGS), rng.choice(TINTS), rng.choice(FOODS)
    nature = rng.choice(NATURES)
    pick = rng.choice
    She = upper(she)

    opening = pick([
        f"Once upon a time, there was {an(nature)} {kind} named {name}.",
        f"Once upon a time, there was a {kind} named {name}. {name} was very {nature}.",
        f"Once upon a time, {an(nature)} {kind} named {name} lived near a {place}.",
        f"Once there was a {kind}. {upper(hers)} name was {name}.",
        f"{name} was {an(nature)} {kind}.",
    ])
    home = pick([f"{She} lived in a little house by the {place}.", f"{She} lived near a big {place}.",
                 f"{She} loved to play by the {place}.", f"Every day {she} went to the {place}."])

    plots = {
        "lost": [
            pick([f"{name} had a {tint} {thing}. {She} loved it very much.",
                  f"{upper(hers)} favourite thing was a {tint} {thing}."]),
            pick([f"One day, the {thing} was gone.", f"One morning, {she} could not find the {thing}."]),
            pick([f"{name} looked under the bed and behind the door, but it was not there. {She} was sad.",
                  f"{She} looked and looked, but the {thing} was not there. {name} began to cry."]),
            pick([f"{upper(hers)} friend {friend} came to help. Together they went to the {place}.",
                  f'"I will help you," said {friend}. They walked to the {place} together.']),
            pick([f"There, under a tall tree, was the {tint} {thing}!",
                  f"A little {animal} was sitting there with the {tint} {thing}!"]),
            pick([f'"Thank you!" said {name}. {She} was happy again.',
                  f"{name} laughed and gave {friend} a big hug."]),
        ],
        "share": [
            pick([f"One day, {name}'s mother gave {her} some {food}.",
                  f"One day, {name} found some {food} in the kitchen."]),
            pick([f"{She} took it to the {place}.", f"{She} wanted to eat it by the {place}."]),
            pick([f"There {she} met a hungry {animal}.",
                  f"On the way, {she} saw {an(animal)}. The {animal} was hungry."]),
            pick([f'"May I have some {food}?" asked the {animal}.', f'"I am so hungry," said the {animal}.']),
            pick([f'"Yes," said {name}, "we can share." So they sat down and ate together.',
                  f"{name} smiled and gave the {animal} half of the {food}."]),
            pick([f"From that day on, {name} and the {animal} were best friends.",
                  f"The {animal} was happy, and {name} was happy too."]),
        ],
        "learn": [
            pick([f"{name} wanted to learn to {pick(['swim', 'climb', 'sing', 'dance'])}, but it was hard.",
                  f"{She} wanted to make a {tint} {thing}, but {she} did not know how."]),
            pick([f'"I cannot do it," said {name}.',
                  f'{name} tried, but it did not work. "It is too hard," {she} said.']),
            pick([f"Then {an(animal)} came along. \"Try again,\" said the {animal}.",
                  f'{upper(hers)} friend {friend} said, "Do not give up. Try again!"']),
            pick([f"So {name} tried again and again, every day.",
                  f"{name} tried one more time, slowly and carefully."]),
            pick([f"At last, {she} could do it! {name} was very proud.",
                  f"And this time it worked! {name} jumped up and down with joy."]),
            pick(["If you try again and again, you can do it.", f"{name} learned that it is good to try again."]),
        ],
        "dark": [
            pick([f"One night, there was a strange sound outside.", f"One night, {name} could not sleep."]),
            pick([f"It was dark, and {name} was afraid.", f"{She} heard a tap, tap, tap at the window."]),
            pick([f"But {she} took a small lamp and went to look.", f"{name} took {hers} lamp and opened the door."]),
            pick([f"It was only a little {animal}, cold and wet from the rain.",
                  f"There sat a small {animal}. It had lost its way."]),
            pick([f"{name} gave it a warm blanket and some {food}.",
                  f'"Come in," said {name}, and gave it some warm {food}.']),
            pick([f"In the morning, the sun was shining, and they played by the {place}.",
                  f"Soon they both fell asleep, and {name} was not afraid any more."]),
        ],
        "trip": [
            pick([f"One sunny day, {name} and {friend} went to the {place}.",
                  f"One day, {name} asked {friend} to come to the {place}."]),
            pick([f"They saw a {tint} bird in a tree and {an(animal)} on the path.",
                  f"They saw {an(animal)} with a {tint} hat. How funny it was!"]),
            pick([f"They played with a {tint} {thing} and ate some {food}.",
                  f"{friend} had some {food}, and they ate it under a tree."]),
            pick(["Then the sky grew dark, and it began to rain.", "Then big clouds came, and the wind blew."]),
            pick([f"They ran home as fast as they could.", f"They hid under a big tree until the rain stopped."]),
            pick([f'"What a day!" said {name}, and they both laughed.',
                  f"A rainbow came out, and {name} smiled. It was a good day."]),
        ],
    }
    ending = pick(["", "", " The end.", f" {name} went home and slept well.", " And they lived happily ever after."])
    return " ".join([opening, home] + plots[rng.choice(list(plots))]) + ending


GREETINGS = [("Hello!", "Hello! How can I help you?"), ("Hi", "Hi! What would you like to know?"),
             ("Good morning!", "Good morning! How are you?"), ("Thank you!", "You are welcome! 😊"),
             ("Who are you?", "I am fs, a small star. I am a tiny language model."),
             ("How are you?", "I am fine, thank you! 😊 And you?"), ("Goodbye!", "Goodbye! See you soon. 👋")]


def exchange(rng):
    """-> (question, thinking, answer): one turn of a chat."""
    draw = rng.random()
    if draw < 0.12:
        question, answer = rng.choice(GREETINGS)
        return question, "The user wants to talk. I should be friendly.", answer
    if draw < 0.24:
        question = rng.choice(["Tell me a story.", "Please tell me a short story.", "Can you tell me a story?"])
        return question, "The user wants a story. I will tell a short one.", story(rng)
    subject, question, answer, _ = fact(rng)
    thinking = rng.choice([f"The user asks about {subject}. {answer} So I will say that.",
                           f"The question is about {subject}. I know that: {answer}"])
    return question, thinking, answer


def chat(rng):
    """A conversation as Qwen3's template renders it: only the last answer keeps its thinking, which may be empty."""
    text = f"<|im_start|>system\n{rng.choice(SYSTEM)}<|im_end|>\n" if rng.random() < 0.3 else ""
    turns = rng.choices([1, 2, 3], [75, 17, 8])[0]
    for turn in range(turns):
        question, thinking, answer = exchange(rng)
        text += f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        if turn == turns - 1:
            text += f"<think>\n{thinking if rng.random() < 0.6 else ''}\n</think>\n\n"
        text += f"{answer}<|im_end|>\n"
    return text


# How often each kind of document comes. SUMMING is a phase between two of MIXED: sums need the most practice.
MIXED = {facts: 17, capitals: 8, sums: 18, counting: 2, story: 27, chat: 28}
SUMMING = {facts: 12, capitals: 6, sums: 60, counting: 1, story: 10, chat: 14}


def document(rng, mix):
    """One document of the training text, <|endoftext|> included."""
    kind = rng.choices(list(mix), list(mix.values()))[0]
    return kind(rng) + "<|endoftext|>"
