"""Neural networks on many accelerators: models as layer graphs, designs with cost models, shardings, and searches.

Pure libraries: nothing here runs on a device. What a plan becomes on devices is the business of later stages.
"""
