"""Language models of GGUF files. Each folder imports from those above it only.

files/        names to GGUF files
tokenizer/    text to token ids and back
generation/   logits to new tokens: KV caches, sampling, grammars, continuous batching
model/        token ids to logits
chat/         conversations to prompts, and replies to text, reasoning and tool calls
server/       HTTP
cli/          the program
"""
