# %% [markdown]
# # For practitioners: certify the model that you have
#
# You have a table, a scikit-learn pipeline, and a number of poisoned samples that you want to withstand. This notebook
# shows what the protection costs in accuracy.

# %%
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import runoff

data = load_breast_cancer(as_frame=True)
X, X_new, y, y_new = train_test_split(data.data, data.target_names[data.target], test_size=0.25, random_state=0)
model = make_pipeline(StandardScaler(), LogisticRegression())  # the whole pipeline goes inside

# %% [markdown]
# ## Choose the number of partitions
#
# `plan` estimates certified accuracy from the training data, without a test set. Choose once, on data that you trust.

# %%
plan = runoff.plan(X, y, model, budgets=(2, 9), n_partitions=(10, 20, 50, 100))
print(plan)

# %% [markdown]
# ## Fit, and compare with the undefended model

# %%
best = plan.best(9)
classifier = runoff.RunoffClassifier(
    model, n_partitions=best.n_partitions, election=best.election, classes=["benign", "malignant"]
).fit(X, y)
certificates = classifier.certify(X_new)
print(classifier.balance())
print(f"undefended, without attack: {classifier.fit_undefended().score(X_new, y_new):.1%}")
for edits, accuracy in zip((0, 2, 9), certificates.certified_accuracy(y_new, (0, 2, 9)), strict=True):
    print(f"certified at {edits} edits: {accuracy:.1%}")

# %% [markdown]
# The overall number can hide a class that is hardly protected:

# %%
for name, row in zip(classifier.classes_, certificates.certified_accuracy(y_new, (0, 9), by_class=True), strict=True):
    print(f"{name}: {row[0]:.1%} without attack, {row[1]:.1%} certified at 9 edits")

# %% [markdown]
# ## One prediction, and a sample to forget

# %%
print(certificates.explain(0))

# %%
classifier.update(remove=(X[:1], y[:1]))
print(f"{len(classifier.updated_members_)} of {len(classifier.members_)} members retrained")
