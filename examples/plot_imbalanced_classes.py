"""
Imbalanced classes
==================

One row in twelve is a fault. Probabilities stay those of the table; the threshold follows from what mistakes cost.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import average_precision_score, precision_recall_curve

from restt import ResTTClassifier

rng = np.random.default_rng(0)
X = rng.standard_normal((900, 4))
risk = 1.8 * X[:, 0] * X[:, 1] + X[:, 2] - 3.4
y = rng.random(900) < 1 / (1 + np.exp(-risk))
X_train, X_test, y_train, y_test = X[:400], X[400:], y[:400], y[400:]
print(f"faults: {y_train.mean():.1%}")

# %%
# Nothing is weighted, so a probability of 10 % means one fault in ten such rows.
model = ResTTClassifier(effort="quick", random_state=0).fit(X_train, y_train)
probability = model.predict_proba(X_test)[:, 1]
print(f"mean probability {probability.mean():.1%}, faults among the test rows {y_test.mean():.1%}")
print(f"average precision {average_precision_score(y_test, probability):.2f}")

# %%
# A missed fault costs ten times as much as a false alarm: raise the alarm above 1/(1 + 10).
for threshold in (0.5, 1 / 11):
    alarm = probability > threshold
    missed, false = (y_test & ~alarm).sum(), (alarm & ~y_test).sum()
    print(f"threshold {threshold:.2f}: {missed} missed, {false} false alarms, cost {10 * missed + false}")

# %%
# Every threshold has a place on this curve.
precision, recall, _ = precision_recall_curve(y_test, probability)
_, axes = plt.subplots(layout="constrained")
axes.step(recall, precision, where="post")
axes.set(xlabel="share of the faults found", ylabel="share of the alarms that are faults")
