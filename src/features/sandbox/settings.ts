/** Settings of the sandbox. Pure. */
import { type Static, Type } from '@sinclair/typebox'
import {
  type Frozen,
  group,
  oneOf,
  SANDBOX_ENGINES,
  sandboxEngine,
  setting,
} from '../../base/settings/setting.ts'

export const sandboxSettings = group({
  engine: setting(
    oneOf(SANDBOX_ENGINES),
    "[where a model's code runs](sandbox.md): `embedded` brings its own shell and Python, and needs the package `just-bash`; `bubblewrap` and `docker` need these programs; `auto` is `embedded` if available, otherwise `bubblewrap` if it works; `none` turns the sandbox off",
    sandboxEngine,
  ),
  network: setting(
    oneOf(['allowlist', 'disabled']),
    '`allowlist`: a request may list domains that its code can reach over HTTPS, if the engine supports it (bubblewrap); addresses are checked as for pages (`tools.webFetch`). `disabled`: code never has network access, and a request with such a list is refused with 400',
    { default: 'allowlist' },
  ),
  timeoutMs: setting(
    Type.Integer({ minimum: 100, maximum: 50_000 }),
    'time limit for one run, below the one-minute limit of a tool call; a request may ask for less',
    { default: 25_000 },
  ),
  cpuSeconds: setting(
    Type.Integer({ minimum: 1, maximum: 600 }),
    'CPU time of one run, across all its threads and processes',
    { default: 30 },
  ),
  memoryMb: setting(
    Type.Integer({ minimum: 256, maximum: 65_536 }),
    'memory of one run in MiB. Python in the embedded engine takes 200 before it runs any code',
    { default: 512 },
  ),
  running: setting(
    Type.Integer({ minimum: 1, maximum: 256 }),
    'concurrent runs; one workspace can use half of them. Further runs wait, and workspaces take turns. Total memory is at most `running` times `memoryMb`',
    { default: 2 },
  ),
  outputBytes: setting(
    Type.Integer({ minimum: 1_024, maximum: 4_194_304 }),
    'maximum bytes of stdout and of stderr of one command; the rest is dropped',
    { default: 262_144 },
  ),
  fileMb: setting(
    Type.Integer({ minimum: 1, maximum: 1_024 }),
    'total size of the files of one container, in MiB; the embedded engine keeps them in memory',
    { default: 16 },
  ),
  storeMb: setting(
    Type.Integer({ minimum: 16, maximum: 65_536 }),
    'total size of the files of all containers, in MiB; above it, the workspace that uses most loses its least recently used container',
    { default: 256 },
  ),
  containers: setting(
    Type.Integer({ minimum: 1, maximum: 100_000 }),
    'maximum number of containers; above it, one ends in the same way',
    { default: 1_000 },
  ),
  containersPerWorkspace: setting(
    Type.Integer({ minimum: 1, maximum: 10_000 }),
    'maximum number of containers per workspace; above it, the least recently used one ends',
    { default: 50 },
  ),
})

export interface SandboxSettings extends Frozen<Static<typeof sandboxSettings>> {}
