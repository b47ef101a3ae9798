"""A contract for import-linter: a module with a leading underscore is imported by its own package only."""

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output


class PrivateModules(Contract):
    """`a.b._c` may be imported by `a.b` and by what is below it."""

    type_name = "private"

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002
        """Find imports of private modules from outside of their packages."""
        crossings = []
        for module in sorted(graph.modules):
            parts = module.split(".")
            private = next((i for i, part in enumerate(parts) if part.startswith("_") and part[:2] != "__"), None)
            if private is None:
                continue
            home = ".".join(parts[:private])
            importers = sorted(graph.find_modules_that_directly_import(module))
            outside = [name for name in importers if name != home and not name.startswith(f"{home}.")]
            crossings += [f"{importer} imports {module}" for importer in outside]
        return ContractCheck(kept=not crossings, metadata={"crossings": crossings})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print each of them."""
        for crossing in check.metadata["crossings"]:
            output.print_error(f"- {crossing}")
