"""Time series."""

from .listed import stack


@stack("pytorch-forecasting==1.8.0", mib=92)
def pytorch_forecasting():
    """A temporal fusion transformer by Lightning"""
    import lightning.pytorch
    import pandas
    from pytorch_forecasting import QuantileLoss, TemporalFusionTransformer, TimeSeriesDataSet

    rows = pandas.DataFrame(dict(time=list(range(60)) * 4, group=[str(i // 60) for i in range(240)], value=range(240)))
    rows["value"] = rows["value"].astype("float32")
    data = TimeSeriesDataSet(
        rows, "time", "value", ["group"], max_encoder_length=24, max_prediction_length=6,
        time_varying_unknown_reals=["value"],
    )
    model = TemporalFusionTransformer.from_dataset(data, hidden_size=32, loss=QuantileLoss())
    trainer = lightning.pytorch.Trainer(max_steps=3, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False)
    trainer.fit(model, data.to_dataloader(batch_size=32))


@stack("neuralforecast==3.3.0", mib=154)
def neuralforecast():
    """N-HiTS, as scikit-learn would have it"""
    import pandas
    from neuralforecast import NeuralForecast
    from neuralforecast.models import NHITS

    rows = pandas.DataFrame(dict(
        unique_id=[str(i // 100) for i in range(400)], ds=list(pandas.date_range("2020", periods=100)) * 4,
        y=[float(i % 7) for i in range(400)],
    ))
    model = NHITS(h=6, input_size=24, max_steps=3, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False)
    NeuralForecast([model], freq="D").fit(rows)


@stack("chronos-forecasting==2.3.2", mib=100)
def chronos():
    """A small Chronos-Bolt"""
    import torch
    from chronos.chronos_bolt import ChronosBoltModelForForecasting
    from transformers import T5Config

    from .common import train

    own = dict(context_length=128, prediction_length=16, input_patch_size=16, input_patch_stride=16, quantiles=[0.1, 0.5, 0.9])
    sizes = dict(d_model=128, d_kv=32, d_ff=256, num_layers=2, num_heads=4, vocab_size=2, pad_token_id=0)
    sizes["decoder_start_token_id"] = 0
    model = ChronosBoltModelForForecasting(T5Config(**sizes, chronos_config=own)).cuda()
    before, after = torch.randn(16, 128, device="cuda"), torch.randn(16, 16, device="cuda")
    train(model, lambda model: model(before, target=after).loss)
