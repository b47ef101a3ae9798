"""Contracts for import-linter: private modules stay in their package, and some packages import only what is listed."""

import sys

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output
from importlinter.application.contract_utils import AlertLevel, remove_ignored_imports
from importlinter.domain.helpers import module_expressions_to_modules


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
        return ContractCheck(kept=not crossings, metadata={"violations": crossings})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print each of them."""
        _render(check)


class ExternalPackages(Contract):
    """The source modules, and all modules that they import, import no external packages but these.

    A list of forbidden packages, in contrast, would miss those that nobody thought of.
    """

    type_name = "external"

    source_modules = fields.SetField(subfield=fields.ModuleExpressionField())
    allowed_packages = fields.SetField(subfield=fields.StringField())
    ignore_imports = fields.SetField(subfield=fields.ImportExpressionField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002
        """Find imports of other packages, by the source modules or by what they import."""
        ignored = self.ignore_imports or ()
        warnings = remove_ignored_imports(graph, ignored, AlertLevel.ERROR)  # type: ignore[arg-type]
        roots = {module.name.split(".")[0] for module in module_expressions_to_modules(graph, self.source_modules)}
        modules: set[str] = set()
        for module in module_expressions_to_modules(graph, self.source_modules):
            below = {module.name, *graph.find_descendants(module.name)}
            modules |= below.union(*(graph.find_upstream_modules(name) for name in below))
        allowed = {*self.allowed_packages, *sys.stdlib_module_names, *roots}  # type: ignore[misc]
        violations = [
            f"{importer} imports {module}"
            for module in sorted(modules)
            if module.split(".")[0] not in allowed
            for importer in sorted(graph.find_modules_that_directly_import(module) & modules)
        ]
        return ContractCheck(kept=not violations, warnings=warnings, metadata={"violations": violations})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print each of them."""
        _render(check)


def _render(check: ContractCheck) -> None:
    for violation in check.metadata["violations"]:
        output.print_error(f"- {violation}")
