# %% [markdown]
# # For security teams: sources, targets, gates and proofs
#
# Training data comes from 150 clinics, and some of them may be compromised. How many compromised clinics does it take
# before a malignant tumour may be reported as benign?

# %%
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import runoff
from runoff.saving import proofs

data = load_breast_cancer()
clinics = np.random.default_rng(0).integers(0, 150, len(data.target))  # who contributed each sample
X, X_new, y, y_new, clinics, _ = train_test_split(data.data, data.target, clinics, test_size=0.25, random_state=0)

# %% [markdown]
# ## One edit is one source, whatever it contributes
#
# Pass a secret `hash_key=runoff.new_key()` in production, so that nobody can direct samples to a member. The radius
# holds even if it leaks.

# %%
classifier = runoff.RunoffClassifier(n_partitions=20, classes=[0, 1]).fit(X, y, groups=clinics)
certificates = classifier.certify(X_new)
print(classifier.balance())
print("certified accuracy at 0, 2 and 5 corrupt clinics:", certificates.certified_accuracy(y_new, [0, 2, 5]).round(2))

# %% [markdown]
# ## The attack that matters: malignant (0) reported as benign (1)

# %%
rate = runoff.targeted_rate(certificates, y_new, source=0, target=1, budgets=[0, 2, 5])
print("malignant inputs that might be turned at 0, 2 and 5 corrupt clinics:", rate.round(2))

# %% [markdown]
# ## A gate for a pipeline, and a proof for others
#
# `runoff certify --require 2:50%` exits with code 3 if less is certified. A proof can be checked without runoff.

# %%
with tempfile.TemporaryDirectory() as folder:
    scores = classifier.scores(X_new)  # they know that sources are counted; a file of scores must be told
    np.save(f"{folder}/scores.npy", scores.values)
    np.save(f"{folder}/y.npy", y_new)
    command = [sys.executable, "-m", "runoff", "certify", f"{folder}/scores.npy", "--labels", f"{folder}/y.npy"]
    command += ["--unit", "sources", "--json"]
    for required in ("2:50%", "2:99.9%"):
        done = subprocess.run([*command, "--require", required], capture_output=True, text=True)
        result = json.loads(done.stdout)
        print(required, "of", result["unit"], "met:", result["met"], "exit code:", done.returncode)
    proofs.write(Path(folder, "proof.json"), runoff.certify(scores), scores.values)
    done = subprocess.run(
        [sys.executable, "-m", "runoff.check", f"{folder}/proof.json"], capture_output=True, text=True
    )
    print("python -m runoff.check: exit code", done.returncode)
    print(*(line for line in done.stdout.splitlines() if line.startswith(("Proven", "Radii"))), sep="\n")

# %% [markdown]
# ## A clinic turns out to be compromised: unlearn it

# %%
bad = clinics == clinics[0]
classifier.update(remove=(X[bad], y[bad], clinics[bad]))
print(f"1 source with {bad.sum()} samples removed, {len(classifier.updated_members_)} of 20 members retrained")
