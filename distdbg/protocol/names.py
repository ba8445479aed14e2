"""Names that launchers and torch define."""

#: Variables with the number of a rank in the job, on its node, and of the node; the first that is set counts. Slurm's
#: number comes last: all processes that mpirun starts in a batch script have the same.
RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID")
LOCAL_RANK = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
NODE_RANK = ("GROUP_RANK", "NODE_RANK", "SLURM_NODEID")
WORLD_SIZE = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", "SLURM_NPROCS")
#: Attributes in which DDP and torch.compile keep a model; in which FSDP1, checkpointing and compile keep its modules.
MODEL_WRAPPERS = ("module", "_orig_mod")
MODULE_WRAPPERS = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod")
#: A line of a script that takes the attribute of a wrapper off the names of parameters, or puts it before them.
CHANGES_PREFIX = r"[\"']module\.|_orig_mod\.|consume_prefix"
