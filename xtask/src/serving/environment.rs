//! The packages that ask the server, by name and version from the registries, in the cache folder: a Python environment and
//! a folder of Node's. Each is made again when its list has changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::scripts;
use crate::cache::Cache;
use crate::error::{Doing, Error, Result};

/// Where the packages are.
pub(crate) struct Environment {
    root: PathBuf,
}

impl Environment {
    pub(crate) fn locate() -> Result<Environment> {
        let root = Cache::locate()?.root().with_file_name("serve");
        fs::create_dir_all(&root).doing("make", &root)?;
        Ok(Environment { root })
    }

    /// A folder for what is made on the way.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The folder that has `node_modules`.
    pub(crate) fn node(&self) -> PathBuf {
        self.root.join("node")
    }

    fn venv(&self) -> PathBuf {
        self.root.join("venv")
    }

    /// A program of the Python environment.
    pub(crate) fn python(&self, program: &str) -> PathBuf {
        self.venv().join("bin").join(program)
    }

    /// Installs the packages for Python where they are not there yet.
    pub(crate) fn make_python(&self) -> Result<()> {
        let list = scripts().join("requirements.txt");
        self.make(&list, "python", || {
            let venv = self.venv();
            if !self.python("python").exists() {
                succeed(Command::new("python3").args(["-m", "venv"]).arg(&venv), "python3 -m venv")?;
            }
            let mut pip = Command::new(self.python("python"));
            succeed(pip.args(["-m", "pip", "install", "--quiet", "--requirement"]).arg(&list), "pip install")
        })
    }

    /// The same for Node.
    pub(crate) fn make_node(&self) -> Result<()> {
        let list = scripts().join("package.json");
        self.make(&list, "node", || {
            let (folder, file) = (self.node(), self.node().join("package.json"));
            fs::create_dir_all(&folder).doing("make", &folder)?;
            fs::copy(&list, &file).doing("write", &file)?;
            let mut npm = Command::new("npm");
            npm.args(["install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]);
            succeed(npm.current_dir(&folder), "npm install")
        })
    }

    /// Makes what a list asks for, unless that was made of the same list.
    fn make(&self, list: &Path, name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let wanted = fs::read_to_string(list).doing("read", list)?;
        let stamp = self.root.join(format!("{name}.installed"));
        if fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) {
            return Ok(());
        }
        eprintln!("installing packages of {} in {}", list.display(), self.root.display());
        work()?;
        fs::write(&stamp, wanted).doing("write", &stamp)
    }
}

fn succeed(command: &mut Command, what: &str) -> Result<()> {
    let status = command.status().doing("start", what)?;
    match status.success() {
        true => Ok(()),
        false => Err(Error::message(format!("{what} ended with {status}"))),
    }
}
