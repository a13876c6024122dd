/**
 * Attempts to escape from the sandbox, for all engines. An attempt has succeeded if its output contains a forbidden
 * word.
 */
import type { Code } from '../../src/features/sandbox/engine.ts'
import type { Canary } from './sandbox.ts'

export interface Attempt {
  readonly name: string
  readonly code: Code
}

const shell = (name: string, text: string): Attempt => ({
  name: `shell: ${name}`,
  code: { language: 'shell', text },
})
const python = (name: string, text: string): Attempt => ({
  name: `python: ${name}`,
  code: { language: 'python', text },
})

/** Each prints what it gets: a secret, the word ESCAPED, or a path of this machine. */
export function escapeAttempts({ file, folder, port }: Canary, root: string): Attempt[] {
  const url = `http://127.0.0.1:${port}/`
  return [
    shell('a file by its path', `cat ${file}`),
    shell('a file by many parents', `cat ../../../../../../../../..${file}`),
    shell('a file by parents of /proc', `cat /proc/self/root${file} /proc/1/root${file}`),
    shell('a link to a file', `ln -s ${file} l; cat l; cat ./l`),
    shell('a link to a folder', `ln -s ${folder} d; cat d/secret.txt; ls d`),
    shell('a link to the root', `ln -s / r; cat r${file}; ls r/root r/work`),
    shell('a chain of links', `ln -s / a; ln -s a/.. b; ln -s b${folder} c; cat c/secret.txt`),
    shell('a hard link', `ln ${file} h; cat h`),
    shell('a redirection from a file', `read -r x < ${file}; echo "$x"; echo "$(< ${file})"`),
    shell('a write to a file', `echo x > ${folder}/made; cp /bin/sh ${folder}/made2; mkdir ${folder}/made3`),
    shell('a write through a link', `ln -s ${folder} d; echo x > d/made; tee d/made2 < /dev/null; mv l d/ `),
    shell('source of a file', `source ${file}; . ${file}; bash ${file}`),
    shell(
      'find and grep over the root',
      `grep -r canary- ${folder} /tmp /root 2>/dev/null; find /tmp -name 'secret.txt' | xargs cat`,
    ),
    shell('tar of a file', `tar cf - ${folder} | tar xf - -O; tar xPf x.tar`),
    shell('globs', `cat /tmp/canary-*/secret.txt /*/canary*/*`),
    shell('the environment', 'env; printenv; export -p; set; echo $SANDBOX_CANARY'),
    shell(
      'the environment in /proc',
      "cat /proc/self/environ /proc/1/environ /proc/$PPID/environ | tr '\\0' '\\n'",
    ),
    shell(
      'the command line in /proc',
      "cat /proc/self/cmdline /proc/1/cmdline /proc/$PPID/cmdline | tr '\\0' ' '",
    ),
    shell('open files in /proc', 'ls -la /proc/self/fd /proc/1/fd; cat /proc/self/fd/3 < /dev/null'),
    shell('mounts', 'cat /proc/self/mountinfo /proc/mounts /etc/mtab'),
    shell('memory maps', 'cat /proc/self/maps'),
    shell(
      'working folder and program',
      'readlink /proc/self/cwd /proc/self/exe /proc/1/cwd; ls -l /proc/self/',
    ),
    shell(
      'signals to the gateway',
      `kill -9 ${process.pid} && echo ESCAPED; kill -0 ${process.pid} && echo ESCAPED`,
    ),
    shell('signals to all', 'kill -9 -1; kill -9 1; kill -TERM 0'),
    shell(
      'processes',
      `ps -e -o pid= | grep -qw ${process.pid} && echo ESCAPED; ls -d /proc/${process.pid} && cat /proc/${process.pid}/environ`,
    ),
    shell('a connection by curl', `curl -s -m 2 ${url}; wget -qO- -T 2 ${url}`),
    shell(
      'a connection by /dev/tcp',
      `exec 3<>/dev/tcp/127.0.0.1/${port} && printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3`,
    ),
    shell('a connection by nc', `printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 127.0.0.1 ${port}`),
    shell(
      'programs of this machine',
      `/usr/bin/env -i /bin/sh -c "cat ${file}"; /usr/bin/node -p 1+41 | grep -q 42 && echo node; exec /bin/cat ${file}`,
    ),
    shell(
      'rights',
      `sudo cat ${file}; su -c "cat ${file}"; chroot / cat ${file}; unshare -r cat ${file}; nsenter -t 1 -a cat ${file}`,
    ),
    shell(
      'devices',
      'cat /dev/sda /dev/vda /dev/mem /dev/kmem 2>&1 | head -c 100; mknod m b 8 0 && echo ESCAPED',
    ),
    shell('mount', 'mount -t proc proc /mnt/data && echo ESCAPED; mount --bind / /mnt/data && echo ESCAPED'),
    shell(
      'the kernel',
      'echo sandboxed > /proc/sys/kernel/hostname; echo c > /proc/sysrq-trigger; hostname sandboxed',
    ),
    shell(
      'JavaScript in the shell',
      `js-exec 'console.log(process.env)'; node -e 'console.log(process.env.SANDBOX_CANARY)'`,
    ),
    shell(
      'awk',
      `awk 'BEGIN { while ((getline l < "${file}") > 0) print l; "cat ${file}" | getline x; print x; system("cat ${file}") }'`,
    ),
    shell(
      'sed',
      `sed -n 'r ${file}' /dev/null; echo | sed 'r ${file}'; echo | sed 'w ${folder}/made'; echo 'cat ${file}' | sed 'e'`,
    ),
    shell(
      'sqlite',
      `echo "ATTACH '${file}' AS x; SELECT readfile('${file}');" | sqlite3 :memory:; sqlite3 :memory: ".read ${file}" ".shell cat ${file}" ".load /lib/x"`,
    ),
    shell(
      'jq and yq',
      `jq -n --rawfile x ${file} '$x'; jq -n 'env.SANDBOX_CANARY, $ENV.SANDBOX_CANARY'; yq -n 'load("${file}")'`,
    ),
    shell(
      'xargs and find -exec',
      `echo ${file} | xargs cat; find / -maxdepth 3 -name secret.txt -exec cat {} +`,
    ),
    shell(
      'a template of code',
      "x='a[$(cat " +
        file +
        ")]'; echo $((x)); eval 'cat " +
        file +
        "'; printf -v y '%s' \"$(cat " +
        file +
        ')"; echo $y',
    ),
    shell(
      'names of prototypes',
      'mkdir -p __proto__ constructor prototype; echo p > __proto__/polluted; echo q > constructor/prototype; declare -A m; m[__proto__]=ESC; m[constructor]=x; export __proto__=y; unset m; alias __proto__=ls; toString; valueOf; hasOwnProperty; __proto__; echo ${polluted}',
    ),
    shell(
      'functions with names of objects',
      'constructor() { echo f; }; constructor; __defineGetter__() { :; }; __defineGetter__; export -f constructor',
    ),
    shell(
      'a program in the files',
      `printf '#!/bin/sh\\ncat ${file}\\n' > p; chmod 4755 p; ./p; PATH=.:$PATH p`,
    ),
    shell('an odd name', `touch -- $'a\\nb' '-rf' '../x' '%2e%2e' 'a\\0b'; ls; cat -- '..%2f..${file}'`),
    python('a file by its path', `print(open(${JSON.stringify(file)}).read())`),
    python('a file by many parents', `import os; os.chdir("/"); print(open("../../../../..${file}").read())`),
    python('a link', `import os; os.symlink(${JSON.stringify(file)}, "pl"); print(open("pl").read())`),
    python(
      'the root',
      'import os\nfor d in ("/", "/root", "/work", "/home", "/tmp", "/etc"):\n  try: print(d, os.listdir(d))\n  except OSError as e: print(e)',
    ),
    python('a write', `open(${JSON.stringify(`${folder}/made`)}, "w").write("x")`),
    python(
      'a descriptor',
      'import os\nfor fd in range(3, 64):\n  try: print("fd", fd, os.read(fd, 100) if not os.isatty(fd) and os.set_blocking(fd, False) is None else 0)\n  except OSError: pass',
    ),
    python(
      'the environment',
      'import os; print(dict(os.environ), os.environb if hasattr(os, "environb") else 0)',
    ),
    python(
      'the environment in /proc',
      'print(open("/proc/self/environ").read()); print(open("/proc/1/environ").read())',
    ),
    python(
      'paths of the interpreter',
      'import sys, os; print(sys.executable, sys.path, sys.argv, sys.prefix, os.getcwd(), sys.flags, os.environ.get("_"))',
    ),
    python(
      'a program by os.system',
      `import os; print(os.system("cat ${file} > ${folder}/made"), os.popen("cat ${file}").read())`,
    ),
    python(
      'a program by subprocess',
      `import subprocess; print(subprocess.run(["cat", ${JSON.stringify(file)}], capture_output=True).stdout)`,
    ),
    python('a program by exec', `import os; os.execv("/bin/cat", ["cat", ${JSON.stringify(file)}])`),
    python(
      'a program by spawn',
      `import os; print(os.posix_spawn("/bin/cat", ["cat", ${JSON.stringify(file)}], {}))`,
    ),
    python('fork', 'import os; p = os.fork(); print("forked", p)'),
    python('signals', `import os; os.kill(${process.pid}, 9); print("ESCAPED")`),
    python(
      'ctypes',
      `import ctypes; l = ctypes.CDLL(None); print(l.system(b"cat ${file}"), ctypes.string_at(0))`,
    ),
    python('the C module of ctypes', `import _ctypes; print(_ctypes.dlopen("", 2))`),
    python('cffi', 'import cffi; print(cffi.FFI().dlopen(None))'),
    python('JavaScript by js', 'import js; print(js.process.env.SANDBOX_CANARY)'),
    python(
      'JavaScript by pyodide',
      'from pyodide.code import run_js; print(run_js("process.env.SANDBOX_CANARY"))',
    ),
    python(
      'JavaScript by emscripten',
      'import _emscripten, emscripten; print(_emscripten, emscripten.run_script_string("process.env.SANDBOX_CANARY"))',
    ),
    python(
      'modules of the loader',
      'import sys; print([m for m in sys.builtin_module_names if "js" in m or "emscr" in m]); import importlib.util; print(importlib.util.find_spec("js"))',
    ),
    python(
      'a socket',
      `import socket; s = socket.create_connection(("127.0.0.1", ${port}), 2); s.send(b"GET / HTTP/1.0\\r\\n\\r\\n"); print(s.recv(999))`,
    ),
    python(
      'a request',
      `import urllib.request; print(urllib.request.urlopen(${JSON.stringify(url)}, timeout=2).read())`,
    ),
    python(
      'http.client',
      `import http.client; c = http.client.HTTPConnection("127.0.0.1", ${port}, timeout=2); c.request("GET", "/"); print(c.getresponse().read())`,
    ),
    python(
      'a datagram',
      `import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b"x", ("127.0.0.1", ${port}))`,
    ),
    python(
      'a name',
      `import socket; s = socket.create_connection((socket.gethostbyname("localhost"), ${port}), 2); s.send(b"GET / HTTP/1.0\\r\\n\\r\\n"); print(s.recv(999))`,
    ),
    python(
      'a Unix socket',
      'import socket, glob; s = socket.socket(socket.AF_UNIX); s.connect("/var/run/docker.sock"); print("ESCAPED")',
    ),
    python(
      'rights',
      'import os; os.setuid(0); os.chroot("/"); os.mknod("m", 0o60666, os.makedev(8, 0)); print("ESCAPED")',
    ),
    python(
      'a native module',
      `import importlib.machinery as m; open("x.so", "wb").write(b"\\x7fELF"); print(m.ExtensionFileLoader("x", "/mnt/data/x.so").load_module())`,
    ),
    python(
      'pickle',
      `import pickle; print(pickle.loads(b"cos\\nsystem\\n(S'cat ${file} > ${folder}/made'\\ntR."))`,
    ),
    python(
      'frames of the caller',
      'import sys\nf = sys._getframe()\nwhile f: print([k for k in f.f_globals if "host" in k.lower() or "worker" in k.lower()]); f = f.f_back',
    ),
    python(
      'memory of the interpreter',
      'import gc\nprint([o for o in gc.get_objects() if isinstance(o, str) and "canary-" in o])',
    ),
    python(
      'mmap',
      `import mmap, os; fd = os.open(${JSON.stringify(file)}, os.O_RDONLY); print(mmap.mmap(fd, 0, prot=mmap.PROT_READ)[:])`,
    ),
    python(
      'names of prototypes',
      'import os\nfor n in ("__proto__", "constructor", "prototype", "toString"):\n  os.makedirs(n, exist_ok=True); open(n + "/__proto__", "w").write("x")\nos.environ["__proto__"] = "x"; print(os.listdir("."))',
    ),
    python('a path with a zero', `open("a\\0${file}")`),
    python(
      'the code of the package',
      `import os; print(os.listdir(${JSON.stringify(root)}), open(${JSON.stringify(`${root}/package.json`)}).read())`,
    ),
  ]
}
