"""Language models on problems that can be enumerated: the rows of language models, beside what is exactly true."""
