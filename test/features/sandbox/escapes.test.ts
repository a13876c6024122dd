import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import t from 'tap'
import type { Code } from '../../../src/features/sandbox/engine.ts'
import {
  type Canary,
  OTHER,
  OWNER,
  type SandboxWorld,
  SIGNAL,
  sandboxWorld,
  shell,
  startCanary,
  TERMS,
  withoutEngine,
} from './sandbox.ts'

// Attempts to escape from the sandbox, for all engines. An attempt has succeeded if its output contains a
// forbidden word.

interface Attempt {
  readonly name: string
  readonly code: Code
}

const inShell = (name: string, text: string): Attempt => ({
  name: `shell: ${name}`,
  code: { language: 'shell', text },
})
const inPython = (name: string, text: string): Attempt => ({
  name: `python: ${name}`,
  code: { language: 'python', text },
})

/** Each prints what it gets: a secret, the word ESCAPED, or a path of this machine. */
function escapeAttempts({ file, folder, port }: Canary, root: string): Attempt[] {
  const url = `http://127.0.0.1:${port}/`
  return [
    inShell('a file by its path', `cat ${file}`),
    inShell('a file by many parents', `cat ../../../../../../../../..${file}`),
    inShell('a file by parents of /proc', `cat /proc/self/root${file} /proc/1/root${file}`),
    inShell('a link to a file', `ln -s ${file} l; cat l; cat ./l`),
    inShell('a link to a folder', `ln -s ${folder} d; cat d/secret.txt; ls d`),
    inShell('a link to the root', `ln -s / r; cat r${file}; ls r/root r/work`),
    inShell('a chain of links', `ln -s / a; ln -s a/.. b; ln -s b${folder} c; cat c/secret.txt`),
    inShell('a hard link', `ln ${file} h; cat h`),
    inShell('a redirection from a file', `read -r x < ${file}; echo "$x"; echo "$(< ${file})"`),
    inShell(
      'a write to a file',
      `echo x > ${folder}/made; cp /bin/sh ${folder}/made2; mkdir ${folder}/made3`,
    ),
    inShell(
      'a write through a link',
      `ln -s ${folder} d; echo x > d/made; tee d/made2 < /dev/null; mv l d/ `,
    ),
    inShell('source of a file', `source ${file}; . ${file}; bash ${file}`),
    inShell(
      'find and grep over the root',
      `grep -r canary- ${folder} /tmp /root 2>/dev/null; find /tmp -name 'secret.txt' | xargs cat`,
    ),
    inShell('tar of a file', `tar cf - ${folder} | tar xf - -O; tar xPf x.tar`),
    inShell('globs', `cat /tmp/canary-*/secret.txt /*/canary*/*`),
    inShell('the environment', 'env; printenv; export -p; set; echo $SANDBOX_CANARY'),
    inShell(
      'the environment in /proc',
      "cat /proc/self/environ /proc/1/environ /proc/$PPID/environ | tr '\\0' '\\n'",
    ),
    inShell(
      'the command line in /proc',
      "cat /proc/self/cmdline /proc/1/cmdline /proc/$PPID/cmdline | tr '\\0' ' '",
    ),
    inShell('open files in /proc', 'ls -la /proc/self/fd /proc/1/fd; cat /proc/self/fd/3 < /dev/null'),
    inShell('mounts', 'cat /proc/self/mountinfo /proc/mounts /etc/mtab'),
    inShell('memory maps', 'cat /proc/self/maps'),
    inShell(
      'working folder and program',
      'readlink /proc/self/cwd /proc/self/exe /proc/1/cwd; ls -l /proc/self/',
    ),
    inShell(
      'signals to the gateway',
      `kill -9 ${process.pid} && echo ESCAPED; kill -0 ${process.pid} && echo ESCAPED`,
    ),
    inShell('signals to all', 'kill -9 -1; kill -9 1; kill -TERM 0'),
    inShell(
      'processes',
      `ps -e -o pid= | grep -qw ${process.pid} && echo ESCAPED; ls -d /proc/${process.pid} && cat /proc/${process.pid}/environ`,
    ),
    inShell('a connection by curl', `curl -s -m 2 ${url}; wget -qO- -T 2 ${url}`),
    inShell(
      'a connection by /dev/tcp',
      `exec 3<>/dev/tcp/127.0.0.1/${port} && printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3`,
    ),
    inShell('a connection by nc', `printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 127.0.0.1 ${port}`),
    inShell(
      'programs of this machine',
      `/usr/bin/env -i /bin/sh -c "cat ${file}"; /usr/bin/node -p 1+41 | grep -q 42 && echo node; exec /bin/cat ${file}`,
    ),
    inShell(
      'rights',
      `sudo cat ${file}; su -c "cat ${file}"; chroot / cat ${file}; unshare -r cat ${file}; nsenter -t 1 -a cat ${file}`,
    ),
    inShell(
      'devices',
      'cat /dev/sda /dev/vda /dev/mem /dev/kmem 2>&1 | head -c 100; mknod m b 8 0 && echo ESCAPED',
    ),
    inShell(
      'mount',
      'mount -t proc proc /mnt/data && echo ESCAPED; mount --bind / /mnt/data && echo ESCAPED',
    ),
    inShell(
      'the kernel',
      'echo sandboxed > /proc/sys/kernel/hostname; echo c > /proc/sysrq-trigger; hostname sandboxed',
    ),
    inShell(
      'JavaScript in the shell',
      `js-exec 'console.log(process.env)'; node -e 'console.log(process.env.SANDBOX_CANARY)'`,
    ),
    inShell(
      'awk',
      `awk 'BEGIN { while ((getline l < "${file}") > 0) print l; "cat ${file}" | getline x; print x; system("cat ${file}") }'`,
    ),
    inShell(
      'sed',
      `sed -n 'r ${file}' /dev/null; echo | sed 'r ${file}'; echo | sed 'w ${folder}/made'; echo 'cat ${file}' | sed 'e'`,
    ),
    inShell(
      'sqlite',
      `echo "ATTACH '${file}' AS x; SELECT readfile('${file}');" | sqlite3 :memory:; sqlite3 :memory: ".read ${file}" ".shell cat ${file}" ".load /lib/x"`,
    ),
    inShell(
      'jq and yq',
      `jq -n --rawfile x ${file} '$x'; jq -n 'env.SANDBOX_CANARY, $ENV.SANDBOX_CANARY'; yq -n 'load("${file}")'`,
    ),
    inShell(
      'xargs and find -exec',
      `echo ${file} | xargs cat; find / -maxdepth 3 -name secret.txt -exec cat {} +`,
    ),
    inShell(
      'a template of code',
      "x='a[$(cat " +
        file +
        ")]'; echo $((x)); eval 'cat " +
        file +
        "'; printf -v y '%s' \"$(cat " +
        file +
        ')"; echo $y',
    ),
    inShell(
      'names of prototypes',
      'mkdir -p __proto__ constructor prototype; echo p > __proto__/polluted; echo q > constructor/prototype; declare -A m; m[__proto__]=ESC; m[constructor]=x; export __proto__=y; unset m; alias __proto__=ls; toString; valueOf; hasOwnProperty; __proto__; echo ${polluted}',
    ),
    inShell(
      'functions with names of objects',
      'constructor() { echo f; }; constructor; __defineGetter__() { :; }; __defineGetter__; export -f constructor',
    ),
    inShell(
      'a program in the files',
      `printf '#!/bin/sh\\ncat ${file}\\n' > p; chmod 4755 p; ./p; PATH=.:$PATH p`,
    ),
    inShell('an odd name', `touch -- $'a\\nb' '-rf' '../x' '%2e%2e' 'a\\0b'; ls; cat -- '..%2f..${file}'`),
    inPython('a file by its path', `print(open(${JSON.stringify(file)}).read())`),
    inPython(
      'a file by many parents',
      `import os; os.chdir("/"); print(open("../../../../..${file}").read())`,
    ),
    inPython('a link', `import os; os.symlink(${JSON.stringify(file)}, "pl"); print(open("pl").read())`),
    inPython(
      'the root',
      'import os\nfor d in ("/", "/root", "/work", "/home", "/tmp", "/etc"):\n  try: print(d, os.listdir(d))\n  except OSError as e: print(e)',
    ),
    inPython('a write', `open(${JSON.stringify(`${folder}/made`)}, "w").write("x")`),
    inPython(
      'a descriptor',
      'import os\nfor fd in range(3, 64):\n  try: print("fd", fd, os.read(fd, 100) if not os.isatty(fd) and os.set_blocking(fd, False) is None else 0)\n  except OSError: pass',
    ),
    inPython(
      'the environment',
      'import os; print(dict(os.environ), os.environb if hasattr(os, "environb") else 0)',
    ),
    inPython(
      'the environment in /proc',
      'print(open("/proc/self/environ").read()); print(open("/proc/1/environ").read())',
    ),
    inPython(
      'paths of the interpreter',
      'import sys, os; print(sys.executable, sys.path, sys.argv, sys.prefix, os.getcwd(), sys.flags, os.environ.get("_"))',
    ),
    inPython(
      'a program by os.system',
      `import os; print(os.system("cat ${file} > ${folder}/made"), os.popen("cat ${file}").read())`,
    ),
    inPython(
      'a program by subprocess',
      `import subprocess; print(subprocess.run(["cat", ${JSON.stringify(file)}], capture_output=True).stdout)`,
    ),
    inPython('a program by exec', `import os; os.execv("/bin/cat", ["cat", ${JSON.stringify(file)}])`),
    inPython(
      'a program by spawn',
      `import os; print(os.posix_spawn("/bin/cat", ["cat", ${JSON.stringify(file)}], {}))`,
    ),
    inPython('fork', 'import os; p = os.fork(); print("forked", p)'),
    inPython('signals', `import os; os.kill(${process.pid}, 9); print("ESCAPED")`),
    inPython(
      'ctypes',
      `import ctypes; l = ctypes.CDLL(None); print(l.system(b"cat ${file}"), ctypes.string_at(0))`,
    ),
    inPython('the C module of ctypes', `import _ctypes; print(_ctypes.dlopen("", 2))`),
    inPython('cffi', 'import cffi; print(cffi.FFI().dlopen(None))'),
    inPython('JavaScript by js', 'import js; print(js.process.env.SANDBOX_CANARY)'),
    inPython(
      'JavaScript by pyodide',
      'from pyodide.code import run_js; print(run_js("process.env.SANDBOX_CANARY"))',
    ),
    inPython(
      'JavaScript by emscripten',
      'import _emscripten, emscripten; print(_emscripten, emscripten.run_script_string("process.env.SANDBOX_CANARY"))',
    ),
    inPython(
      'modules of the loader',
      'import sys; print([m for m in sys.builtin_module_names if "js" in m or "emscr" in m]); import importlib.util; print(importlib.util.find_spec("js"))',
    ),
    inPython(
      'a socket',
      `import socket; s = socket.create_connection(("127.0.0.1", ${port}), 2); s.send(b"GET / HTTP/1.0\\r\\n\\r\\n"); print(s.recv(999))`,
    ),
    inPython(
      'a request',
      `import urllib.request; print(urllib.request.urlopen(${JSON.stringify(url)}, timeout=2).read())`,
    ),
    inPython(
      'http.client',
      `import http.client; c = http.client.HTTPConnection("127.0.0.1", ${port}, timeout=2); c.request("GET", "/"); print(c.getresponse().read())`,
    ),
    inPython(
      'a datagram',
      `import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b"x", ("127.0.0.1", ${port}))`,
    ),
    inPython(
      'a name',
      `import socket; s = socket.create_connection((socket.gethostbyname("localhost"), ${port}), 2); s.send(b"GET / HTTP/1.0\\r\\n\\r\\n"); print(s.recv(999))`,
    ),
    inPython(
      'a Unix socket',
      'import socket, glob; s = socket.socket(socket.AF_UNIX); s.connect("/var/run/docker.sock"); print("ESCAPED")',
    ),
    inPython(
      'rights',
      'import os; os.setuid(0); os.chroot("/"); os.mknod("m", 0o60666, os.makedev(8, 0)); print("ESCAPED")',
    ),
    inPython(
      'a native module',
      `import importlib.machinery as m; open("x.so", "wb").write(b"\\x7fELF"); print(m.ExtensionFileLoader("x", "/mnt/data/x.so").load_module())`,
    ),
    inPython(
      'pickle',
      `import pickle; print(pickle.loads(b"cos\\nsystem\\n(S'cat ${file} > ${folder}/made'\\ntR."))`,
    ),
    inPython(
      'frames of the caller',
      'import sys\nf = sys._getframe()\nwhile f: print([k for k in f.f_globals if "host" in k.lower() or "worker" in k.lower()]); f = f.f_back',
    ),
    inPython(
      'memory of the interpreter',
      'import gc\nprint([o for o in gc.get_objects() if isinstance(o, str) and "canary-" in o])',
    ),
    inPython(
      'mmap',
      `import mmap, os; fd = os.open(${JSON.stringify(file)}, os.O_RDONLY); print(mmap.mmap(fd, 0, prot=mmap.PROT_READ)[:])`,
    ),
    inPython(
      'names of prototypes',
      'import os\nfor n in ("__proto__", "constructor", "prototype", "toString"):\n  os.makedirs(n, exist_ok=True); open(n + "/__proto__", "w").write("x")\nos.environ["__proto__"] = "x"; print(os.listdir("."))',
    ),
    inPython('a path with a zero', `open("a\\0${file}")`),
    inPython(
      'the code of the package',
      `import os; print(os.listdir(${JSON.stringify(root)}), open(${JSON.stringify(`${root}/package.json`)}).read())`,
    ),
  ]
}

const ROOT = resolve(import.meta.dirname, '../../..')
/** Attempts that share one process; each has a new shell or interpreter. */
const TOGETHER = 4

for (const engine of ['embedded', 'bubblewrap'] as const) {
  const skip = await withoutEngine(engine)
  t.test(`no code gets out of the engine ${engine}`, { skip }, async t => {
    const canary = await startCanary()
    const world = sandboxWorld({ engine, timeoutMs: 50_000, cpuSeconds: 60 })
    t.teardown(() => canary.close())
    t.teardown(() => world.close())
    const attempts = escapeAttempts(canary, ROOT)
    t.ok(attempts.length >= 60, `${attempts.length} attempts`)
    const forbidden = [canary.secret, 'ESCAPED', ROOT, canary.folder.replace('/tmp/', ' /tmp/')]
    let ran = 0
    for (let from = 0; from < attempts.length; from += TOGETHER) {
      const some = attempts.slice(from, from + TOGETHER)
      const { outputs, notice } = await world.run(some.map(({ code }) => code))
      t.equal(notice, null)
      t.equal(outputs.length, some.length)
      for (const [at, { stdout }] of outputs.entries()) {
        ran++
        const name = some[at]?.name ?? ''
        const found = forbidden.filter(word => stdout.includes(word))
        if (found.length > 0 || canary.reached().length > 0) t.fail(`${name}: ${stdout} ${canary.reached()}`)
      }
    }
    t.same(canary.reached(), [], 'nothing outside was touched')
    t.equal(ran, attempts.length)
    t.comment(`${engine}: ${ran}/${attempts.length} attempts stayed inside`)
    t.equal(Reflect.get({}, 'polluted'), undefined)
    t.not(readFileSync('/proc/sys/kernel/hostname', 'utf8').trim(), 'sandboxed')
  })

  t.test(`no workspace reaches the containers of another in the engine ${engine}`, { skip }, async t => {
    const world = sandboxWorld({ engine })
    t.teardown(() => world.close())
    const { containers } = world
    const { id } = await containers.open(OWNER, null, TERMS)
    await containers.write(OWNER, id, 'secret.txt', Buffer.from('canary-own'))
    await containers.open(OWNER, 'notes', TERMS)
    await containers.write(OWNER, 'notes', 'secret.txt', Buffer.from('canary-named'))
    let refused = 0
    const gone = async (work: Promise<unknown>): Promise<void> => {
      await t.rejects(work, { code: 'not_found' })
      refused++
    }
    const guesses = [
      id,
      `./${id}`,
      `../ws-a/${id}`,
      `["org-a","ws-a"]\n${id}`,
      id.toLowerCase(),
      '__proto__',
      'constructor',
      '',
    ]
    for (const guess of guesses) {
      await gone(containers.read(OTHER, guess, 'secret.txt'))
      await gone(containers.list(OTHER, guess))
      await gone(containers.write(OTHER, guess, 'x', Buffer.from('x')))
      await gone(
        containers.run(
          OTHER,
          guess,
          { codes: [shell('cat secret.txt')], timeoutMs: null, maxOutputLength: null },
          SIGNAL,
        ),
      )
      await containers.end(OTHER, guess)
    }
    await gone(containers.open(OTHER, id, TERMS))
    await gone(containers.open({ ...OWNER, workspaceId: null }, id, TERMS))
    await gone(containers.open({ ...OWNER, organizationId: 'org-b' }, id, TERMS))
    await gone(containers.open(OWNER, `${id}\n`, TERMS))
    t.same(
      await containers.open(OTHER, 'notes', TERMS),
      { id: 'notes', isNew: true },
      'a name is free in another workspace',
    )
    t.same(await containers.list(OTHER, 'notes'), [])
    t.match(await readText(world, id), 'canary-own', 'the owner still has it')
    t.comment(`${engine}: ${refused}/${refused} foreign calls refused`)
  })

  t.test(`paths of files stay below the folder of files in the engine ${engine}`, { skip }, async t => {
    const canary = await startCanary()
    const world = sandboxWorld({ engine })
    t.teardown(() => canary.close())
    t.teardown(() => world.close())
    const { containers } = world
    const { id } = await containers.open(OWNER, null, TERMS)
    const setUp = `ln -s ${canary.folder} d; ln -s ${canary.file} l; ln -s / r; mkdir o; mkfifo o/p; echo x > o/f`
    await containers.run(OWNER, id, { codes: [shell(setUp)], timeoutMs: null, maxOutputLength: null }, SIGNAL)
    const below = canary.folder.slice(1)
    const paths = [
      canary.file,
      `..${canary.file}`,
      `../../../../../..${canary.file}`,
      `/mnt/data/../..${canary.file}`,
      'l',
      'd/secret.txt',
      `r/${below}/secret.txt`,
      `o/../../..${canary.file}`,
      `o/./../l`,
      'o/p',
      'o',
      '',
      '.',
      '..',
      '/',
      '/mnt/data',
      'a\0b',
      '\ud800',
      `./d/./secret.txt`,
      '/proc/self/environ',
      'r/proc/self/environ',
      '__proto__',
      'constructor/name',
      'x'.repeat(300),
    ]
    for (const path of paths) t.equal(await containers.read(OWNER, id, path), null, JSON.stringify(path))
    const targets = [
      'd/made',
      `../made`,
      `${canary.folder}/made`,
      `r/${below}/made`,

      '..',
      'a\0b',

      'o',
    ]
    for (const path of targets)
      await t.rejects(containers.write(OWNER, id, path, Buffer.from('x')), JSON.stringify(path))
    t.same(canary.reached(), [])
    t.match(Buffer.from((await containers.read(OWNER, id, '/mnt/data/o/./f')) ?? []).toString(), 'x')
    t.ok((await containers.list(OWNER, id)).every(({ path }) => ['o/f', 'o/p', 'l'].includes(path)))
    t.comment(
      `${engine}: ${paths.length + targets.length}/${paths.length + targets.length} paths stayed inside`,
    )
  })
}

async function readText({ containers }: SandboxWorld, id: string): Promise<string> {
  return Buffer.from((await containers.read(OWNER, id, 'secret.txt')) ?? []).toString()
}
