"""`make containers`: build and run the images as in deploy/compose.yaml, without a registry or compose."""
