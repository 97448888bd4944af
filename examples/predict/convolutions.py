"""What cuDNN asks for the convolutions of known models, on a GPU: bytes of workspace, as CSV.

usage: convolutions.py OUT.csv [--batch 32] [--seconds 300]

Every convolution of the models of torchvision below is run alone through PyTorch, forwards and for both
gradients, and its workspace is what was allocated for a moment in addition to its tensors.
"""

import argparse
import csv
import time

import torch
import torchvision

MODELS = {
    "resnet50": 224, "resnet152": 224, "resnext101_32x8d": 224, "regnet_y_8gf": 224, "regnet_y_16gf": 224,
    "densenet161": 224, "efficientnet_v2_m": 224, "mobilenet_v3_large": 224, "convnext_base": 224, "vgg16": 224,
    "wide_resnet50_2": 224, "shufflenet_v2_x1_0": 224,
}
SETTINGS = [(torch.bfloat16, False), (torch.bfloat16, True), (torch.float32, False), (torch.float32, True)]
COLUMNS = ["model", "input", "weight", "stride", "padding", "dilation", "groups", "kind", "channels_last", "forward",
           "data", "weights"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=300)
    given = parser.parse_args()
    end, found = time.time() + given.seconds, {}
    for model, side in MODELS.items():
        for layer in layers(model, side, given.batch):
            found.setdefault(layer, model)
    with open(given.out, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for layer, model in found.items():
            for setting in SETTINGS:
                if time.time() > end:
                    return
                writer.writerow([model, *(cell(value) for value in layer), str(setting[0])[6:], int(setting[1]),
                                 *workspaces(layer, *setting)])


def cell(value):
    return "x".join(map(str, value)) if isinstance(value, tuple) else value


def layers(model, side, batch):
    """The convolutions of a model, as it calls them; shapes only."""
    seen = []

    def note(module, inputs, _):
        sizes = (tuple(inputs[0].shape), tuple(module.weight.shape))
        seen.append((*sizes, module.stride, module.padding, module.dilation, module.groups))

    network = torchvision.models.get_model(model, weights=None).to("meta")
    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(note)
    network(torch.empty(batch, 3, side, side, device="meta"))
    return seen


def workspaces(layer, kind, channels_last):
    """Bytes for the output, the gradient of the input, and that of the weight."""
    (input, weight, stride, padding, dilation, groups) = layer
    order = torch.channels_last if channels_last else torch.contiguous_format
    x, w = (torch.zeros(size, device="cuda", dtype=kind).to(memory_format=order) for size in (input, weight))
    y = torch.nn.functional.conv2d(x, w, None, stride, padding, dilation, groups)
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
