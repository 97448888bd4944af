"""Vision: detection, segmentation, classification, diffusion."""

import tempfile

from .listed import stack


@stack("ultralytics==8.4.190", mib=174)
def yolo():
    """YOLO11 trained on eight drawn images"""
    from pathlib import Path

    import cv2
    import numpy
    from ultralytics import YOLO

    with tempfile.TemporaryDirectory() as folder:
        for kind in ["images", "labels"]:
            Path(folder, kind).mkdir()
        for number in range(8):
            cv2.imwrite(f"{folder}/images/{number}.png", numpy.random.randint(0, 255, (160, 160, 3), dtype="uint8"))
            Path(folder, f"labels/{number}.txt").write_text("0 0.5 0.5 0.3 0.3\n1 0.2 0.2 0.2 0.2\n")
        Path(folder, "data.yaml").write_text(f"path: {folder}\ntrain: images\nval: images\nnames: [a, b]\n")
        YOLO("yolo11n.yaml").train(
            data=f"{folder}/data.yaml", epochs=1, imgsz=160, batch=4, workers=0, amp=False, plots=False, val=False,
            project=folder, device=0,
        )


@stack("monai==1.6.1", mib=38)
def monai():
    """A 3-D U-Net with a Dice loss, then a sliding window"""
    import torch
    from monai.inferers import sliding_window_inference
    from monai.losses import DiceCELoss
    from monai.networks.nets import UNet

    from .common import train

    model = UNet(3, 1, 2, channels=(16, 32, 64), strides=(2, 2), num_res_units=2).cuda()
    data, labels = torch.randn(2, 1, 32, 32, 32, device="cuda"), torch.randint(0, 2, (2, 1, 32, 32, 32), device="cuda")
    loss = DiceCELoss(to_onehot_y=True, softmax=True)
    train(model, lambda model: loss(model(data), labels))
    with torch.no_grad():
        sliding_window_inference(torch.randn(1, 1, 64, 64, 64, device="cuda"), (32, 32, 32), 4, model.eval())


@stack("open-clip-torch==3.3.0", mib=106)
def open_clip():
    """A small CLIP with its contrastive loss"""
    import torch
    from open_clip.loss import ClipLoss
    from open_clip.model import CLIP

    from .common import images, train

    picture = dict(image_size=64, layers=2, width=128, patch_size=16, head_width=64)
    text = dict(context_length=32, vocab_size=1000, width=128, heads=2, layers=2)
    model, loss = CLIP(embed_dim=128, vision_cfg=picture, text_cfg=text).cuda(), ClipLoss()
    ids = torch.randint(1, 1000, (8, 32), device="cuda")
    train(model, lambda model: loss(*model(images(8), ids)))


@stack("timm==1.0.31", mib=316)
def timm():
    """EfficientNet and a vision transformer, with their own optimizer"""
    import timm
    from timm.optim import create_optimizer_v2

    from .common import images, train

    for name, side in [("efficientnet_b0", 64), ("vit_tiny_patch16_224", 224)]:
        model = timm.create_model(name, num_classes=10).cuda()
        train(model, lambda model: model(images(4, side)).square().mean(), optimizer=create_optimizer_v2(model, "lamb"))


@stack("torchvision==0.26.0", mib=764)
def torchvision_detection():
    """Faster R-CNN"""
    import torch
    from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn as network

    from .common import train

    boxes = torch.tensor([[10.0, 10, 80, 90], [30, 40, 120, 130]], device="cuda")
    target = dict(boxes=boxes, labels=torch.tensor([1, 2], device="cuda"))
    pictures = [torch.rand(3, 160, 200, device="cuda"), torch.rand(3, 200, 160, device="cuda")]
    model = network(weights=None, weights_backbone=None, num_classes=5).cuda()
    train(model, lambda model: sum(model(pictures, [target, target]).values()))


@stack("diffusers==0.42.1", "transformers==5.17.0", mib=254)
def diffusers():
    """A conditional U-Net trained on noise, then a pipeline's loop of denoising"""
    import torch
    from diffusers import DDPMScheduler, UNet2DConditionModel

    from .common import train

    model = UNet2DConditionModel(
        sample_size=32, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(64, 128),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=64,
    ).cuda()
    plan, text = DDPMScheduler(), torch.randn(4, 16, 64, device="cuda")

    def loss(model):
        noise = torch.randn(4, 4, 32, 32, device="cuda")
        times = torch.randint(0, 1000, (4,), device="cuda")
        return (model(plan.add_noise(noise, noise, times), times, text).sample - noise).square().mean()

    train(model, loss)
    sample = torch.randn(4, 4, 32, 32, device="cuda")
    plan.set_timesteps(4)
    with torch.no_grad():
        for time in plan.timesteps:
            sample = plan.step(model(sample, time, text).sample, time, sample).prev_sample


@stack("segmentation-models-pytorch==0.6.0", mib=314)
def segmentation_models():
    """A U-Net over a ResNet, with a Dice loss"""
    import segmentation_models_pytorch as segmentation
    import torch

    from .common import images, train

    model = segmentation.Unet("resnet18", encoder_weights=None, classes=3).cuda()
    loss, labels = segmentation.losses.DiceLoss("multiclass"), torch.randint(0, 3, (4, 64, 64), device="cuda")
    train(model, lambda model: loss(model(images()), labels))


@stack("kornia==0.9.0", mib=36)
def kornia():
    """Augmentations on the GPU, and features"""
    import kornia
    import torch

    from .common import images

    change = kornia.augmentation.AugmentationSequential(
        kornia.augmentation.ColorJitter(0.2, 0.2, 0.2, 0.2), kornia.augmentation.RandomAffine(30.0),
        kornia.augmentation.RandomPerspective(0.3), data_keys=["input"],
    )
    pictures = change(images().sigmoid())
    kornia.filters.canny(pictures)
    kornia.feature.harris_response(pictures.mean(1, keepdim=True))
    torch.cuda.synchronize()


@stack("denoising-diffusion-pytorch==2.3.4", mib=192)
def denoising_diffusion():
    """Diffusion of lucidrains: training and sampling"""
    from denoising_diffusion_pytorch import GaussianDiffusion, Unet

    from .common import images, train

    model = GaussianDiffusion(Unet(dim=32, dim_mults=(1, 2)), image_size=32, timesteps=10).cuda()
    train(model, lambda model: model(images(4, 32).sigmoid()))
    model.sample(batch_size=2)


@stack("vector-quantize-pytorch==1.32.0", mib=92)
def vector_quantize():
    """A codebook with moving averages"""
    import torch
    from vector_quantize_pytorch import VectorQuantize

    layer = VectorQuantize(dim=128, codebook_size=512, decay=0.9, commitment_weight=1.0).cuda()
    for _ in range(3):
        quantized, _, loss = layer(torch.randn(4, 256, 128, device="cuda", requires_grad=True))
        (quantized.square().mean() + loss.sum()).backward()


@stack("segment-anything==1.0", mib=106)
def segment_anything():
    """The image encoder and the mask decoder of SAM, small"""
    import torch
    from segment_anything.modeling import ImageEncoderViT, MaskDecoder, PromptEncoder, TwoWayTransformer

    encoder = ImageEncoderViT(img_size=256, embed_dim=128, depth=2, num_heads=4, out_chans=64, window_size=7, use_rel_pos=True)
    prompts = PromptEncoder(embed_dim=64, image_embedding_size=(16, 16), input_image_size=(256, 256), mask_in_chans=16)
    between = TwoWayTransformer(depth=2, embedding_dim=64, mlp_dim=128, num_heads=4)
    decoder = MaskDecoder(transformer_dim=64, transformer=between)
    parts = torch.nn.ModuleList([encoder, prompts, decoder]).cuda()
    optimizer = torch.optim.AdamW(parts.parameters())
    points = torch.rand(1, 3, 2, device="cuda") * 256, torch.ones(1, 3, device="cuda")
    for _ in range(3):
        sparse, dense = prompts(points=points, boxes=None, masks=None)
        seen = encoder(torch.randn(1, 3, 256, 256, device="cuda"))
        masks, scores = decoder(seen, prompts.get_dense_pe(), sparse, dense, multimask_output=True)
        (masks.square().mean() + scores.square().mean()).backward()
        optimizer.step()
        optimizer.zero_grad()


@stack("lightly==1.6.0", mib=318)
def lightly():
    """SimCLR's loss and projection"""
    import torch
    from lightly.loss import NTXentLoss
    from lightly.models.modules import SimCLRProjectionHead
    from torchvision.models import resnet18

    from .common import images, train

    body = resnet18(num_classes=128)
    model, loss = torch.nn.Sequential(body, SimCLRProjectionHead(128, 128, 64)).cuda(), NTXentLoss()
    train(model, lambda model: loss(model(images(8)), model(images(8))))
