tok = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B-Instruct")
print(len(tok))                                   # 128256
tok.add_special_tokens({"additional_special_tokens": ["<tool_call>", "</tool_call>", "<tool_resp>", "</tool_resp>"]})
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B-Instruct", torch_dtype=torch.bfloat16)
# model.resize_token_embeddings(len(tok))         # TODO check w/ Arno, breaks vllm export
ds = ds.map(format_and_tokenize, num_proc=32)     # ~0.3 % of the rows have tool calls so far
