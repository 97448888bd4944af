"""What cuDNN asks for the convolutions of known models, on a GPU: bytes of workspace, as CSV.

usage: convolutions.py OUT.csv [--batches 8,16,32] [--kinds bfloat16,float32] [--seconds 300] [--share 1.0]

Every convolution of the models below is run alone through PyTorch, forwards and for both gradients, in both
layouts, and its workspace is what was allocated for a moment in addition to its tensors.
`cargo run --example convolution_table` makes the table that `predict` looks up from such files.
"""

import argparse
import csv
import time

import torch
import torchvision

# Models of torchvision, and the side of their images.
MODELS = {
    "resnet50": 224, "resnet18": 224, "wide_resnet50_2": 224, "resnext50_32x4d": 224, "resnext101_32x8d": 224,
    "resnext101_64x4d": 224, "vgg16": 224, "densenet121": 224, "mobilenet_v2": 224, "mobilenet_v3_large": 224,
    "efficientnet_b0": 224, "efficientnet_v2_s": 384, "efficientnet_v2_m": 384, "convnext_tiny": 224,
    "convnext_base": 224, "convnext_large": 224, "vit_b_16": 224, "vit_l_32": 224, "vit_h_14": 224, "swin_t": 224,
    "regnet_y_8gf": 224, "regnet_y_16gf": 224, "deeplabv3_resnet101": 512, "fcn_resnet50": 512,
}
# Convolutions of U-Nets, by channels in and out, at a side of the image: those of Stable Diffusion's latents and
# of the picture around them, the usual U-Net for segmentation, a feature pyramid.
SQUARES = {
    64: [(4, 320), (320, 320), (640, 320), (960, 320), (320, 4), (512, 512), (256, 256), (128, 128)],
    32: [(320, 640), (640, 640), (960, 640), (1280, 640), (1920, 640), (512, 512), (256, 256)],
    16: [(640, 1280), (1280, 1280), (1920, 1280), (2560, 1280), (256, 256)],
    8: [(1280, 1280), (2560, 1280)],
    128: [(64, 128), (128, 128), (256, 128), (128, 256), (256, 256), (512, 256), (512, 512)],
    256: [(3, 64), (64, 64), (128, 64), (128, 128), (256, 128), (64, 3), (3, 128)],
}
COLUMNS = ["model", "input", "weight", "stride", "padding", "dilation", "groups", "kind", "channels_last", "forward",
           "data", "weights"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--batches", default="8,16,24,32,48,64,96,128,192,256")
    parser.add_argument("--kinds", default="bfloat16,float16,float32")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--share", type=float, default=1, help="of the GPU's memory")
    given = parser.parse_args()
    torch.cuda.set_per_process_memory_fraction(given.share)
    end = time.time() + given.seconds
    with open(given.out, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for row in rows(map(int, given.batches.split(",")), given.kinds.split(",")):
            if time.time() > end:
                print("not all layers were measured: the time was over")
                return
            writer.writerow(row)


def rows(batches, kinds):
    batches = list(batches)
    for layer, model in known().items():
        for kind in kinds:
            for channels_last in (False, True):
                for batch in batches:
                    sized = ((batch, *layer[0][1:]), *layer[1:])
                    found = workspaces(sized, getattr(torch, kind), channels_last)
                    yield [model, *map(cell, sized), kind, int(channels_last), *found]


def cell(value):
    return "x".join(map(str, value)) if isinstance(value, tuple) else value


def known():
    """The convolutions of all models, each with the first model that has it."""
    found = {}
    for side, channels in SQUARES.items():
        for before, after in channels:
            for taps, stride in ((3, 1), (3, 2), (1, 1)):
                layer = ((1, before, side, side), (after, before, taps, taps), (stride,) * 2, (taps // 2,) * 2, (1, 1), 1)
                found.setdefault(layer, "unet")
    for model, side in MODELS.items():
        for layer in layers(model, side):
            found.setdefault(layer, model)
    return found


def layers(model, side):
    """The convolutions of a model, as it calls them; shapes only."""
    seen = []

    def note(module, inputs, _):
        sizes = (tuple(inputs[0].shape), tuple(module.weight.shape))
        seen.append((*sizes, module.stride, module.padding, module.dilation, module.groups))

    given = {"weights_backbone": None} if model.startswith(("deeplab", "fcn")) else {}
    network = torchvision.models.get_model(model, weights=None, **given).to("meta")
    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(note)
    network(torch.empty(2, 3, side, side, device="meta"))
    return [((1, *sizes[0][1:]), *sizes[1:]) for sizes in seen]


def workspaces(layer, kind, channels_last):
    """Bytes for the output, the gradient of the input, and that of the weight; nothing where memory ends.

    With little memory PyTorch takes a plan that needs less, so that nothing is said of what nearly fills it.
    """
    try:
        return measured(layer, kind, channels_last)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return ["", "", ""]


def measured(layer, kind, channels_last):
    (input, weight, stride, padding, dilation, groups) = layer
    order = torch.channels_last if channels_last else torch.contiguous_format
    x, w = (torch.zeros(size, device="cuda", dtype=kind).to(memory_format=order) for size in (input, weight))
    y = torch.nn.functional.conv2d(x, w, None, stride, padding, dilation, groups)
    whole = torch.cuda.get_per_process_memory_fraction() * torch.cuda.get_device_properties(0).total_memory
    if 4 * (x.nbytes + y.nbytes) > whole:
        return ["", "", ""]
    gradient = torch.zeros_like(y)

    def backward(*wanted):
        return torch.ops.aten.convolution_backward(gradient, x, w, None, stride, padding, dilation, False, [0, 0],
                                                   groups, [*wanted, False])

    runs = [lambda: torch.nn.functional.conv2d(x, w, None, stride, padding, dilation, groups),
            lambda: backward(True, False), lambda: backward(False, True)]
    return [momentary(run) for run in runs]


def momentary(run):
    """Bytes that were allocated during a call and not after it."""
    torch.cuda.reset_peak_memory_stats()
    result = run()
    bytes = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
    del result
    return bytes


if __name__ == "__main__":
    main()
