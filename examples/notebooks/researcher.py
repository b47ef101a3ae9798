# %% [markdown]
# # For researchers: elections, bounds and attacks on the scores of an ensemble
#
# A certificate needs only an array of scores, `(n_samples, n_members, n_classes)`.

# %%
import numpy as np
from matplotlib import pyplot as plt

import runoff

rng = np.random.default_rng(0)  # stands for your ensemble: 500 inputs, 60 members, 6 classes
labels = rng.integers(0, 6, 500)
scores = rng.normal(size=(500, 60, 6)) + 1.5 * rng.uniform(size=(500, 1, 1)) * np.eye(6)[labels][:, None]

# %% [markdown]
# ## Elections on the same members

# %%
budgets = [0, 5, 10, 15, 20]
for election in ("plurality", "runoff", "maximin"):
    certificates = runoff.certify(scores, election=election)
    print(f"{election:10}", *(f"{100 * a:6.1f}" for a in certificates.certified_accuracy(labels, budgets)))

# %% [markdown]
# ## The paper's bound and the tight one, with a spread
#
# Each of 60 buckets reaches three members (FA).

# %%
spread = runoff.spreads.cyclic(60, [0, 7, 23])
for bound in ("paper", "tight"):
    certificates = runoff.certify(scores, spread=spread, bound=bound)
    print(f"{bound:6} mean radius {certificates.radius.mean():.3f}")

# %% [markdown]
# ## An attack, carried out
#
# For one bucket per member the smallest attack has exactly `radius + 1` members, so the radius cannot be improved.

# %%
certificates = runoff.certify(scores)
attack = certificates.attack(3)
print(certificates.explain(3))
print("after the attack:", runoff.certify(attack.apply(scores[3])[None]).prediction[0], "=", attack.prediction)

# %%
figure, ax = plt.subplots(figsize=(5, 3), layout="constrained")
for election in ("plurality", "runoff", "maximin"):
    runoff.certify(scores, election=election).plot(labels, ax=ax, label=election)
ax.legend()
