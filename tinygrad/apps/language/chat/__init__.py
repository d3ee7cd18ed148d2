"""Conversations to prompts, and replies to text, reasoning and tool calls."""
