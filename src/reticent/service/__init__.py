"""The service: a private predictor in production."""
