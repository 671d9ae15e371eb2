"""nn.Modules that hold parameters and call app.maths."""
