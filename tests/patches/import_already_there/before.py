import autotune_conv
import os
