"""What MkDocs is given beside mkdocs.yml: the order of pages, and pages that are not in docs/."""

from typing import Any

from trainops.documentation import pages
from trainops.documentation.pages import NavigationEntry


def on_config(config: Any) -> Any:
    """Set the order of pages, and anchors as on GitHub."""
    config.nav = [_nav(each) for each in pages.navigation()]
    config.mdx_configs.setdefault("toc", {})["slugify"] = pages.slug
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from the top of the repository and the generated ones."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - only MkDocs loads this module

    for path in sorted(pages.paths()):
        if files.get_file_from_path(path) is None:
            files.append(File.generated(config, path, content=pages.markdown(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the text with links to pages of the site only."""
    return pages.markdown(page.file.src_uri)


def _nav(entry: NavigationEntry) -> dict[str, Any]:
    inside = [_nav(each) for each in entry.children]
    return {entry.title: inside or entry.path}
