#include "tensor/blocks.h"
