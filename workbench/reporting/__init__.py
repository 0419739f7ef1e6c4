"""From a checkpoint to an archived report: watch, claim, evaluate, run the notebook, export, index, alert."""
