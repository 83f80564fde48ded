"""Each language's own tool: fetched once by its user, then two phases without a network, with the project's own tests.

A tool that is not installed here is not tried, and named so.
"""

import os
import pwd
import shutil
import zipfile
from pathlib import Path

import pytest

from rigs.toolchains.conftest import Phase, Project
from rigs.toolchains.test_projects import rewrite

HOME = Path(pwd.getpwuid(os.getuid()).pw_dir)
"""Of who runs the tests; a project's own user has another one."""


def require_tool(*names: str) -> None:
    """End a test that needs a program which this machine has not."""
    for name in names:
        if shutil.which(name) is None:
            pytest.skip(f"not tried: {name} is not installed here")


def work_on(project: Project, check: str, code: str, test: str, comment: str = "//") -> None:
    """Have two sessions change code and test, each with the check typed in it too."""
    project.commit()
    project.plan(check, items=(f"Say more — {code}", f"Test more — {test}"))
    phases = [
        Phase({name: f"{(project.root / name).read_text()}{comment} more\n"}, commands=(check,))
        for name in (code, test)
    ]
    project.work(*rewrite(*phases))


def publish(folder: Path, files: dict[str, str], project: Project) -> str:
    """Make a repository of a package that the project needs, and return its address."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    project.sh(f"cd {folder} && git init -q && git add -A && git commit -q -m start")
    return f"file://{folder}"


def live_at_home(project: Project) -> None:
    """Java takes its user's home directory from the list of users, whatever HOME says."""
    project.env["HOME"] = str(HOME)
    project.sh("git config user.name T && git config user.email t@example.invalid")


@pytest.mark.parametrize("moved", ["", "dev"])
def test_cargo_with_a_dependency_from_git(project: Project, tmp_path: Path, moved: str) -> None:
    """Kept in ~/.cargo/git; with CARGO_HOME elsewhere in the home directory, too. rustup's own stays where it is."""
    require_tool("cargo")
    rustup = Path(os.environ.get("RUSTUP_HOME") or HOME / ".rustup")
    if rustup.is_dir():
        project.env["RUSTUP_HOME"] = str(rustup)
    if moved:
        project.env["CARGO_HOME"] = f"{project.home}/{moved}/cargo"
    cargo = '[package]\nname = "{name}"\nversion = "1.0.0"\nedition = "2021"\n'
    helper = {"Cargo.toml": cargo.format(name="helper"), "src/lib.rs": 'pub fn word() -> &\'static str { "hello" }\n'}
    where = publish(tmp_path / "helper", helper, project)
    project.write("Cargo.toml", cargo.format(name="demo") + f'[dependencies]\nhelper = {{ git = "{where}" }}\n')
    project.write("src/lib.rs", "pub fn greet() -> &'static str {\n    helper::word()\n}\n")
    project.write("tests/greets.rs", '#[test]\nfn greets() {\n    assert_eq!(demo::greet(), "hello");\n}\n')
    project.write(".gitignore", "target/\n")
    project.sh("cargo test -q")
    work_on(project, "cargo test -q", "src/lib.rs", "tests/greets.rs")


@pytest.mark.parametrize("moved", ["", "dev"])
def test_go_with_a_module(project: Project, tmp_path: Path, moved: str) -> None:
    """Kept in ~/go/pkg, or below GOPATH; from a proxy in a directory."""
    require_tool("go")
    if moved:
        project.env["GOPATH"] = f"{project.home}/{moved}/go"
    module, text = "example.invalid/helper", "module example.invalid/helper\n\ngo 1.18\n"
    versions = tmp_path / "proxy" / module / "@v"
    versions.mkdir(parents=True)
    (versions / "list").write_text("v1.0.0\n")
    (versions / "v1.0.0.info").write_text('{"Version": "v1.0.0", "Time": "2024-01-01T00:00:00Z"}')
    (versions / "v1.0.0.mod").write_text(text)
    with zipfile.ZipFile(versions / "v1.0.0.zip", "w") as packed:
        packed.writestr(f"{module}@v1.0.0/go.mod", text)
        packed.writestr(f"{module}@v1.0.0/helper.go", 'package helper\n\nfunc Word() string { return "hello" }\n')
    project.write("go.mod", f"module demo\n\ngo 1.18\n\nrequire {module} v1.0.0\n")
    project.write("demo.go", f'package demo\n\nimport "{module}"\n\nfunc Greet() string {{ return helper.Word() }}\n')
    test = 'func TestGreet(t *testing.T) {\n\tif Greet() != "hello" {\n\t\tt.Fatal(Greet())\n\t}\n}\n'
    project.write("demo_test.go", f'package demo\n\nimport "testing"\n\n{test}')
    project.sh(f"GOPROXY=file://{tmp_path}/proxy GOSUMDB=off go mod tidy && go vet ./...")
    work_on(project, "go vet ./... && go test ./...", "demo.go", "demo_test.go")


def test_deno_with_a_package_of_npm(project: Project) -> None:
    """Kept in its cache, which it writes."""
    require_tool("npm")
    project.sh("npm install --prefix ~/.local -g deno")
    project.write("deno.json", '{ "tasks": { "test": "deno test" } }\n')
    project.write("demo.ts", 'export const greet = (): string => "hello";\n')
    test = 'Deno.test("greets", () => {\n  if (!isOdd(greet().length)) throw new Error("even");\n});\n'
    project.write("demo.test.ts", f'import isOdd from "is-odd";\nimport {{ greet }} from "./demo.ts";\n{test}')
    project.sh("deno add npm:is-odd && deno task test")
    work_on(project, "deno check demo.ts && deno task test", "demo.ts", "demo.test.ts")


def test_bundler_with_a_gem_from_git(project: Project, tmp_path: Path) -> None:
    """And two that the system has."""
    require_tool("bundle")
    spec = 'Gem::Specification.new { |s| s.name = "helper"; s.version = "1"; s.summary = "-"; s.authors = ["T"] }\n'
    helper = {"helper.gemspec": spec, "lib/helper.rb": 'module Helper\n  def self.word = "hello"\nend\n'}
    where = publish(tmp_path / "helper", helper, project)
    gems = f'gem "rake"\ngem "minitest"\ngem "helper", git: "{where}"\n'
    project.write("Gemfile", f'source "https://rubygems.org"\n{gems}')
    project.write("Rakefile", 'task(:default) { ruby "-I", ".", "test_demo.rb" }\n')
    project.write("demo.rb", 'require "helper"\n\ndef greet = Helper.word\n')
    test = 'class TestDemo < Minitest::Test\n  def test_greets = assert_equal("hello", greet)\nend\n'
    project.write("test_demo.rb", f'require "minitest/autorun"\nrequire "demo"\n\n{test}')
    project.sh("bundle install --local")
    work_on(project, "bundle exec rake", "demo.rb", "test_demo.rb", "#")


def test_composer_with_a_package_of_a_directory(project: Project, tmp_path: Path) -> None:
    """Copied to vendor/; the tests by the PHPUnit of the system."""
    require_tool("composer", "phpunit")
    (tmp_path / "helper").mkdir()
    (tmp_path / "helper/composer.json").write_text(
        '{"name": "x/helper", "version": "1.0.0", "autoload": {"files": ["helper.php"]}}'
    )
    (tmp_path / "helper/helper.php").write_text('<?php\nfunction word() { return "hello"; }\n')
    project.write(
        "composer.json",
        '{"name": "x/demo", "require": {"x/helper": "1.0.0"}, "scripts": {"test": "phpunit DemoTest.php"},'
        f' "repositories": [{{"type": "path", "url": "{tmp_path}/helper", "options": {{"symlink": false}}}},'
        ' {"packagist.org": false}]}\n',
    )
    project.write("demo.php", '<?php\nrequire __DIR__ . "/vendor/autoload.php";\nfunction greet() { return word(); }\n')
    project.write(
        "DemoTest.php",
        '<?php\nrequire __DIR__ . "/demo.php";\nfinal class DemoTest extends PHPUnit\\Framework\\TestCase\n{\n'
        '    public function testGreet(): void { $this->assertSame("hello", greet()); }\n}\n',
    )
    project.write(".gitignore", "vendor/\n.phpunit.result.cache\n")
    project.sh("composer install")
    work_on(project, "composer test", "demo.php", "DemoTest.php")


def write_java(project: Project, annotation: str) -> None:
    """Write a class and its test."""
    project.write("src/main/java/Demo.java", 'public class Demo {\n  static String greet() { return "hello"; }\n}\n')
    line = 'if (!Demo.greet().equals("hello")) throw new AssertionError();'
    project.write(
        "src/test/java/DemoTest.java", f"public class DemoTest {{\n  @{annotation} public void t() {{ {line} }}\n}}\n"
    )


JAVA = ("src/main/java/Demo.java", "src/test/java/DemoTest.java")


def test_maven(project: Project) -> None:
    """Its repository is only read."""
    require_tool("mvn")
    live_at_home(project)
    write_java(project, "org.junit.jupiter.api.Test")
    versions = {"resources": "3.3.1", "compiler": "3.13.0", "surefire": "3.2.5"}
    plugins = "".join(
        f"<plugin><artifactId>maven-{name}-plugin</artifactId><version>{version}</version></plugin>"
        for name, version in versions.items()
    )
    project.write(
        "pom.xml",
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>x</groupId>'
        "<artifactId>demo</artifactId><version>1</version><properties><maven.compiler.release>17</maven.compiler.release>"
        "<project.build.sourceEncoding>UTF-8</project.build.sourceEncoding></properties><dependencies><dependency>"
        "<groupId>org.junit.jupiter</groupId><artifactId>junit-jupiter</artifactId><version>5.10.2</version>"
        f"<scope>test</scope></dependency></dependencies><build><plugins>{plugins}</plugins></build></project>\n",
    )
    project.write(".gitignore", "target/\n")
    project.sh("mvn -q -o test || mvn -q test")
    work_on(project, "mvn -q -o test", *JAVA)


@pytest.mark.timeout(600)
def test_gradle(project: Project) -> None:
    """It writes its caches and has a daemon; JUnit is the system's."""
    require_tool("gradle")
    live_at_home(project)
    write_java(project, "org.junit.Test")
    project.write("settings.gradle", "rootProject.name = 'demo'\n")
    project.write(
        "build.gradle",
        "apply plugin: 'java'\nrepositories { flatDir { dirs '/usr/share/java' } }\n"
        "dependencies { testCompile name: 'junit4'; testCompile name: 'hamcrest-core' }\n",
    )
    project.write(".gitignore", "build/\n.gradle/\n")
    project.sh("gradle --offline test")
    work_on(project, "gradle --offline --no-daemon test", *JAVA)


def test_pipenv(project: Project) -> None:
    """Its environments are below ~/.local/share/virtualenvs."""
    project.install("pipenv")
    source = '[[source]]\nurl = "https://pypi.org/simple"\nverify_ssl = true\nname = "pypi"\n'
    project.write("Pipfile", f'{source}[dev-packages]\npytest = "*"\n')
    project.write("demo.py", 'def greet():\n    return "hello"\n')
    project.write("test_demo.py", 'from demo import greet\n\n\ndef test_greet():\n    assert greet() == "hello"\n')
    project.write(".gitignore", "__pycache__/\n.pytest_cache/\n")
    project.sh("pipenv install --dev")
    work_on(project, "pipenv run python -m pytest -q", "demo.py", "test_demo.py", "#")


def test_a_program_of_pipx(project: Project) -> None:
    """What pipx has installed runs; pipx itself writes its home directory, and does not."""
    project.install("pipx")
    project.write("demo.py", 'def greet():\n    return "hello"\n')
    project.write("test_demo.py", 'from demo import greet\n\n\ndef test_greet():\n    assert greet() == "hello"\n')
    project.write(".gitignore", "__pycache__/\n.pytest_cache/\n")
    project.sh("pipx install -q pytest && test -x ~/.local/bin/pytest")
    work_on(project, "pytest -q", "demo.py", "test_demo.py", "#")
