"""Reinforcement learning."""

from .listed import stack


@stack("stable-baselines3==2.9.2", mib=66)
def stable_baselines3():
    """PPO on a pole"""
    from stable_baselines3 import PPO

    PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=2, device="cuda").learn(256)


@stack("torchrl==0.14.1", mib=68)
def torchrl():
    """The clipped loss of PPO on a made-up rollout"""
    import torch
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule
    from torchrl.modules import ProbabilisticActor, ValueOperator
    from torchrl.objectives import ClipPPOLoss
    from torchrl.objectives.value import GAE

    def network(outputs):
        return torch.nn.Sequential(torch.nn.Linear(8, 128), torch.nn.Tanh(), torch.nn.Linear(128, outputs)).cuda()

    policy = TensorDictModule(network(4), in_keys=["observation"], out_keys=["logits"])
    draws = torch.distributions.Categorical
    actor = ProbabilisticActor(policy, in_keys=["logits"], distribution_class=draws, return_log_prob=True)
    critic = ValueOperator(network(1), in_keys=["observation"])
    loss, advantage = ClipPPOLoss(actor, critic), GAE(gamma=0.99, lmbda=0.95, value_network=critic)
    optimizer = torch.optim.Adam(loss.parameters())
    for _ in range(3):
        rows = TensorDict({"observation": torch.randn(16, 32, 8)}, [16, 32]).cuda()
        with torch.no_grad():
            actor(rows)
        last = torch.zeros(16, 32, 1, dtype=torch.bool, device="cuda")
        rows["next"] = TensorDict({"observation": torch.randn(16, 32, 8), "reward": torch.randn(16, 32, 1)}, [16, 32]).cuda()
        rows["next", "done"] = rows["next", "terminated"] = last
        with torch.no_grad():
            advantage(rows)
        found = loss(rows.reshape(-1))
        (found["loss_objective"] + found["loss_critic"] + found["loss_entropy"]).backward()
        optimizer.step()
        optimizer.zero_grad()
