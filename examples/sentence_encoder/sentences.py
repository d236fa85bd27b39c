"""The sentences: pairs that are compared, and others that only calibrate."""

COMPARED = (
    ("A man is playing a guitar on stage.", "Someone performs music with a guitar."),
    ("Someone performs music with a guitar.", "The cat sat on the warm windowsill."),
    (
        "Interest rates rose for the third time this year.",
        "The spacecraft reached orbit on Tuesday.",
    ),
)
"""One paraphrase, then two pairs that have nothing in common."""

CALIBRATION = (
    "The train to the coast leaves at half past six.",
    "Please send the signed contract before Friday.",
    "Children were flying kites over the empty beach.",
    "The new processor keeps its weights in on-chip memory.",
    "He could not remember where he had parked the car.",
    "Rain is expected in the north until tomorrow morning.",
    "What is the fastest way to learn a foreign language?",
    "The museum shows paintings of the nineteenth century.",
    "Two dogs chase a ball across the lawn.",
    "Scientists discovered a new species of frog in the rainforest.",
    "My grandmother grows tomatoes and beans in her garden.",
    "The committee postponed its decision again.",
    "Water boils at a lower temperature in the mountains.",
    "They watched the football match in a crowded bar.",
    "A bicycle is leaning against the wall of the library.",
    "Turn left at the second traffic light, then go straight ahead.",
)
