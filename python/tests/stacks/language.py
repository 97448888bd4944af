"""Language models and embeddings."""

import tempfile

from .listed import stack


@stack("peft==0.21.2", "transformers==5.17.0", mib=106)
def peft():
    """DoRA on a Llama, recomputation"""
    from peft import LoraConfig, get_peft_model

    from .common import causal, causal_model, train

    model = get_peft_model(causal_model(), LoraConfig(r=8, use_dora=True, target_modules=["q_proj", "v_proj"])).cuda()
    model.gradient_checkpointing_enable()
    model.enable_input_require_grads()
    train(model.train(), causal)


@stack("sentence-transformers==6.2.0", "accelerate==1.15.0", mib=80)
def sentence_transformers():
    """A BERT fine-tuned with in-batch negatives, then encodes"""
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
        losses,
        models,
    )
    from transformers import BertConfig, BertModel

    from .common import saved, sentence

    sizes = dict(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256, vocab_size=1004)
    with tempfile.TemporaryDirectory() as folder:
        path = saved(BertModel(BertConfig(**sizes)), f"{folder}/bert")
        words = models.Transformer(path, max_seq_length=64)
        model = SentenceTransformer(modules=[words, models.Pooling(128)], device="cuda")
        data = Dataset.from_dict({name: [sentence(i + j) for i in range(32)] for j, name in enumerate(["anchor", "positive"])})
        given = SentenceTransformerTrainingArguments(f"{folder}/out", max_steps=3, save_strategy="no", report_to="none")
        loss = losses.MultipleNegativesRankingLoss(model)
        SentenceTransformerTrainer(model, given, train_dataset=data, loss=loss).train()
        model.encode([sentence(i) for i in range(8)])


@stack("x-transformers==2.31.10", mib=158)
def x_transformers():
    """A decoder with rotary embeddings, trained as a language model"""
    import torch
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    from .common import train

    layers = Decoder(dim=256, depth=2, heads=4, rotary_pos_emb=True, attn_flash=True)
    model = AutoregressiveWrapper(TransformerWrapper(num_tokens=1000, max_seq_len=256, attn_layers=layers)).cuda()
    train(model, lambda model: model(torch.randint(0, 1000, (4, 256), device="cuda")))


@stack("transformers==5.17.0", mib=42)
def generate():
    """Sampling from a Llama with a cache"""
    import torch

    from .common import causal_model

    model = causal_model().cuda().eval()
    model.generate(torch.randint(4, 1000, (4, 32), device="cuda"), max_new_tokens=16, do_sample=True, pad_token_id=0)


@stack("adapters==1.3.0", mib=74, alone=True)
def adapters():
    """A bottleneck adapter in a BERT"""
    import adapters
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    from .common import train

    sizes = dict(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256, vocab_size=1004)
    model = BertForSequenceClassification(BertConfig(**sizes))
    adapters.init(model)
    model.add_adapter("own", config="seq_bn")
    model.train_adapter("own")
    ids, labels = torch.randint(4, 1000, (8, 64), device="cuda"), torch.zeros(8, dtype=torch.long, device="cuda")
    train(model.cuda(), lambda model: model(input_ids=ids, labels=labels).loss)


@stack("opacus==1.6.0", mib=88)
def opacus():
    """Differentially private training"""
    import torch
    from opacus import PrivacyEngine

    model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).cuda()
    data = torch.utils.data.TensorDataset(torch.randn(128, 128), torch.randint(0, 10, (128,)))
    loader = torch.utils.data.DataLoader(data, batch_size=32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
    )
    for rows, labels in loader:
        torch.nn.functional.cross_entropy(model(rows.cuda()), labels.cuda()).backward()
        optimizer.step()
        optimizer.zero_grad()


@stack("captum==0.9.0", mib=68)
def captum():
    """Integrated gradients"""
    import torch
    from captum.attr import IntegratedGradients

    from .common import perceptron

    data = torch.randn(8, 256, device="cuda")
    IntegratedGradients(perceptron().cuda()).attribute(data, target=0, n_steps=16)
