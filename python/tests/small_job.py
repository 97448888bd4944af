"""Five training steps of a small network, as a program that knows nothing of us would do them."""

import torch

torch.manual_seed(0)
net = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
opt = torch.optim.AdamW(net.parameters())
for step in range(5):
    x = torch.randn(512 + step * 64, 2048, device="cuda")
    net(x).square().mean().backward()
    opt.step()
    opt.zero_grad(set_to_none=True)
reserved, live = torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated()
assert 0 < live <= reserved < 1.05 * live, (reserved, live)
print(f"{reserved >> 20} MiB reserved for {live >> 20} MiB")
