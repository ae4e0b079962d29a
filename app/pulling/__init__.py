"""Download of models in the catalogue from a hub, package registries, mirrors or a folder, with checks and a
manifest.
"""

import engine as engine  # turns off the telemetry of huggingface_hub, which reads the switch when it is imported
