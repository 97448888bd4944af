"""Trainers: frameworks that own the loop."""

import tempfile

from .listed import stack


@stack("pytorch-lightning==2.6.6", mib=72)
def lightning():
    """A perceptron in mixed precision, by a Trainer"""
    import pytorch_lightning
    import torch

    from .common import perceptron

    class Net(pytorch_lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = perceptron()

        def training_step(self, batch, _index):
            return self.net(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    data = torch.utils.data.TensorDataset(torch.randn(256, 256))
    trainer = pytorch_lightning.Trainer(
        max_steps=3, accelerator="gpu", devices=1, precision="bf16-mixed", logger=False, enable_checkpointing=False
    )
    trainer.fit(Net(), torch.utils.data.DataLoader(data, batch_size=64))


@stack("transformers==5.17.0", "accelerate==1.15.0", mib=138)
def transformers_trainer():
    """A Llama by Trainer, in bfloat16"""
    import torch
    from transformers import Trainer, TrainingArguments

    from .common import causal_model

    ids = torch.randint(4, 1000, (32, 128))
    data = [dict(input_ids=row, labels=row) for row in ids]
    with tempfile.TemporaryDirectory() as out:
        given = TrainingArguments(out, max_steps=3, bf16=True, save_strategy="no", report_to="none")
        Trainer(causal_model(), given, train_dataset=data).train()


@stack("accelerate==1.15.0", mib=72)
def accelerate():
    """Mixed precision and accumulation"""
    import torch
    from accelerate import Accelerator

    from .common import perceptron

    accelerator = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=2)
    model = perceptron()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    for _ in range(6):
        with accelerator.accumulate(model):
            accelerator.backward(model(torch.randn(64, 256, device="cuda")).square().mean())
            optimizer.step()
            optimizer.zero_grad()


@stack("torch==2.11.0", mib=150, arguments=("--world", "2", "--ranks", "0"))
def fsdp2():
    """`fully_shard`, rank 0 of 2"""
    import torch
    import torch.distributed
    from torch.distributed.fsdp import fully_shard

    from .common import perceptron, train

    torch.distributed.init_process_group("nccl")
    model = perceptron(1024).cuda()
    for layer in model[::2]:
        fully_shard(layer)
    fully_shard(model)
    train(model, lambda model: model(torch.randn(64, 1024, device="cuda")).square().mean())


@stack("deepspeed==0.19.8", mib=1142, arguments=("--world", "2", "--ranks", "0"))
def deepspeed():
    """ZeRO-3, rank 0 of 2"""
    import deepspeed
    import torch

    from .common import perceptron

    settings = {
        "train_micro_batch_size_per_gpu": 8,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"torch_adam": True}},
        "zero_optimization": {"stage": 3},
    }
    deepspeed.init_distributed()
    with deepspeed.zero.Init(config_dict_or_path=settings):
        model = perceptron(1024)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
    for _ in range(3):
        engine.backward(engine(torch.randn(8, 1024, device="cuda", dtype=torch.bfloat16)).float().square().mean())
        engine.step()


@stack("trl==1.16.0", "peft==0.21.2", mib=234)
def trl_sft():
    """SFTTrainer with LoRA and packing"""
    from datasets import Dataset
    from peft import LoraConfig
    from trl import SFTConfig, SFTTrainer

    from .common import causal_model, sentence, words

    data = Dataset.from_dict({"text": [sentence(number, 20 + number) for number in range(64)]})
    with tempfile.TemporaryDirectory() as out:
        given = SFTConfig(out, max_steps=3, packing=True, max_length=128, bf16=True, save_strategy="no", report_to="none")
        lora = LoraConfig(r=8, target_modules="all-linear")
        SFTTrainer(causal_model(), given, train_dataset=data, processing_class=words(), peft_config=lora).train()


@stack("trl==1.16.0", mib=126)
def trl_dpo():
    """DPOTrainer, with a reference model"""
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    from .common import causal_model, sentence, words

    rows = [dict(prompt=sentence(i, 10), chosen=sentence(i + 1, 20), rejected=sentence(i + 2, 20)) for i in range(32)]
    with tempfile.TemporaryDirectory() as out:
        given = DPOConfig(out, max_steps=3, bf16=True, save_strategy="no", report_to="none")
        data = Dataset.from_list(rows)
        DPOTrainer(causal_model(), causal_model(), args=given, train_dataset=data, processing_class=words()).train()


@stack("trl==1.16.0", mib=112)
def trl_grpo():
    """GRPOTrainer, which samples"""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from .common import causal_model, sentence, words

    data = Dataset.from_dict({"prompt": [sentence(i, 8) for i in range(32)]})
    with tempfile.TemporaryDirectory() as out:
        given = GRPOConfig(
            out, max_steps=2, bf16=True, num_generations=4, per_device_train_batch_size=4, max_completion_length=16,
            save_strategy="no", report_to="none",
        )
        rewards = lambda completions, **_: [float(len(text)) for text in completions]  # noqa: E731
        GRPOTrainer(causal_model(), rewards, given, data, processing_class=words()).train()


@stack("unsloth==2026.10.9", mib=94, alone=True)
def unsloth():
    """LoRA with its checkpointing"""
    from unsloth import FastLanguageModel  # isort: skip
    import torch

    from .common import causal, causal_model, saved, train

    with tempfile.TemporaryDirectory() as folder:
        path = saved(causal_model(), folder)
        model, _ = FastLanguageModel.from_pretrained(path, max_seq_length=128, dtype=torch.bfloat16, load_in_4bit=False)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = FastLanguageModel.get_peft_model(model, r=8, target_modules=targets, use_gradient_checkpointing="unsloth")
    train(model, causal)


@stack("megatron-core==0.16.1", mib=126)
def megatron_core():
    """A GPT of its own layers and its distributed optimizer"""
    import os

    import torch
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer import TransformerConfig
    from megatron.core.transformer.module import Float16Module

    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29555")
    torch.distributed.init_process_group("nccl")
    parallel_state.initialize_model_parallel()
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    config = TransformerConfig(num_layers=2, hidden_size=256, num_attention_heads=4, bf16=True, params_dtype=torch.bfloat16)
    model = GPTModel(config, get_gpt_layer_local_spec(), vocab_size=1024, max_sequence_length=128).cuda()
    model = Float16Module(config, model)
    wrapped = DistributedDataParallel(config, DistributedDataParallelConfig(use_distributed_optimizer=True), model)
    given = OptimizerConfig(optimizer="adam", lr=1e-4, bf16=True, params_dtype=torch.bfloat16, use_distributed_optimizer=True)
    optimizer = get_megatron_optimizer(given, [wrapped])
    ids = torch.randint(0, 1024, (4, 128), device="cuda")
    places = torch.arange(128, device="cuda").expand(4, -1)
    mask = torch.ones(1, 1, 128, 128, device="cuda").tril() < 0.5
    for _ in range(3):
        wrapped.zero_grad_buffer()
        wrapped(ids, places, mask, labels=ids).float().mean().backward()
        wrapped.finish_grad_sync()
        optimizer.step()
        optimizer.zero_grad()


@stack("torchtitan==0.2.2", mib=300)
def torchtitan():
    """Its Llama 3 for debugging, by its Trainer"""
    import json
    import os
    from pathlib import Path

    from torchtitan.config import ConfigManager
    from torchtitan.train import Trainer

    from .common import sentence, words

    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29556")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        words().save_pretrained("tokenizer")
        Path("c4").mkdir()
        Path("c4/data.json").write_text("\n".join(json.dumps({"text": sentence(i, 200)}) for i in range(100)))
        given = ["--model.name=llama3", "--model.flavor=debugmodel", "--model.hf_assets_path=tokenizer"]
        given += ["--training.dataset=c4_test", "--training.dataset_path=c4", "--training.steps=3", "--training.seq_len=256"]
        Trainer(ConfigManager().parse_args(given)).train()


@stack("llamafactory==0.9.5", mib=76, alone=True)
def llama_factory():
    """SFT with LoRA, from its YAML-like arguments"""
    import json
    from pathlib import Path

    from llamafactory.train.tuner import run_exp

    from .common import causal_model, saved, sentence

    with tempfile.TemporaryDirectory() as folder:
        saved(causal_model(), folder)
        rows = [dict(instruction=sentence(i, 8), input="", output=sentence(i + 1, 16)) for i in range(32)]
        Path(folder, "rows.json").write_text(json.dumps(rows))
        Path(folder, "dataset_info.json").write_text(json.dumps({"rows": {"file_name": "rows.json"}}))
        run_exp(dict(
            model_name_or_path=folder, stage="sft", do_train=True, finetuning_type="lora", dataset="rows",
            dataset_dir=folder, template="default", cutoff_len=128, output_dir=f"{folder}/out", max_steps=3, bf16=True,
            per_device_train_batch_size=4, report_to="none", save_strategy="no", overwrite_cache=True,
        ))


@stack("skorch==1.4.0", mib=68)
def skorch():
    """A classifier in scikit-learn's manner"""
    import numpy
    import torch
    from skorch import NeuralNetClassifier

    from .common import perceptron

    net = NeuralNetClassifier(perceptron(), criterion=torch.nn.CrossEntropyLoss, max_epochs=2, device="cuda", train_split=None)
    net.fit(numpy.random.randn(256, 256).astype("float32"), numpy.random.randint(0, 256, 256))
