"""What several programs need: small models, data without a download, three steps of training."""

import torch
import torch.nn as nn


def perceptron(width=256, depth=4):
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(*layers)


def llama(**more):
    """The configuration of a Llama of 3 million parameters."""
    from transformers import LlamaConfig

    sizes = dict(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4)
    sizes |= dict(num_key_value_heads=2, vocab_size=1024, max_position_embeddings=512)
    return LlamaConfig(**(sizes | more))


def causal_model(**more):
    from transformers import LlamaForCausalLM

    return LlamaForCausalLM(llama(**more))


def words(count=1000):
    """A tokenizer that knows the words w0, w1, ..."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    known = {name: number for number, name in enumerate(["<pad>", "<s>", "</s>", "<unk>", *(f"w{i}" for i in range(count))])}
    plain = Tokenizer(models.WordLevel(known, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def sentence(number, length=40):
    return " ".join(f"w{(number * 7 + each) % 1000}" for each in range(length))


def saved(model, folder, tokenizer=None):
    """A folder as from_pretrained reads it."""
    model.save_pretrained(folder)
    (tokenizer or words()).save_pretrained(folder)
    return str(folder)


def train(model, loss, steps=3, optimizer=None):
    """Some steps; `loss` is a function of the model."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(steps):
        loss(model).backward()
        optimizer.step()
        optimizer.zero_grad()


def causal(model):
    """The loss of a causal language model on a batch."""
    ids = torch.randint(4, 1000, (4, 128), device="cuda")
    return model(input_ids=ids, labels=ids).loss


def images(count=4, side=64, channels=3):
    return torch.randn(count, channels, side, side, device="cuda")
