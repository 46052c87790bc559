"""Networks for images and tables, with the runs axis: softmax, MLP, LeNet-5, ResNet18."""
