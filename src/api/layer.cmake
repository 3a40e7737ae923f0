# Its sources have the same names, each for the fields of its own requests: no two of them can be one source.
set_target_properties(sluice_api PROPERTIES UNITY_BUILD OFF)
