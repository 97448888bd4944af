"""Speech and music."""


from .listed import stack


@stack("torchaudio==2.11.0", mib=74)
def torchaudio():
    """Mel spectrograms, a Conformer, the loss of transducers"""
    import torch
    import torchaudio

    from .common import train

    mel = torchaudio.transforms.MelSpectrogram(16000, n_mels=80).cuda()
    model = torchaudio.models.Conformer(80, 4, 128, 2, 31).cuda()
    waves, lengths = torch.randn(4, 16000, device="cuda"), torch.full((4,), 81, device="cuda")
    train(model, lambda model: model(mel(waves).transpose(1, 2), lengths)[0].square().mean())


@stack("transformers==5.17.0", mib=164)
def whisper():
    """A small Whisper: training, then generate"""
    import torch
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    from .common import train

    sizes = dict(d_model=128, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4)
    sizes |= dict(encoder_ffn_dim=256, decoder_ffn_dim=256, vocab_size=1024, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    sizes |= dict(decoder_start_token_id=1, begin_suppress_tokens=None, suppress_tokens=None)
    model = WhisperForConditionalGeneration(WhisperConfig(**sizes)).cuda()
    sound, labels = torch.randn(2, 80, 3000, device="cuda"), torch.randint(3, 1000, (2, 32), device="cuda")
    train(model, lambda model: model(input_features=sound, labels=labels).loss)


@stack("encodec==0.1.1", mib=206)
def encodec():
    """A neural codec of sound, with residual quantization"""
    import torch
    from encodec import EncodecModel

    model = EncodecModel.encodec_model_24khz(pretrained=False).cuda()
    model.set_target_bandwidth(6.0)
    with torch.no_grad():
        model.decode(model.encode(torch.randn(1, 1, 24000, device="cuda")))
