/** The settings of server tools: `tools` of the configuration file. Pure. */
import { Type } from '@sinclair/typebox'
import { SearchEngineSchema } from './rows.ts'
import {
  Address,
  filesEndpoint,
  filesUrl,
  group,
  Milliseconds,
  nullable,
  oneOf,
  SANDBOX_ENGINES,
  sandboxEngine,
  setting,
} from './setting.ts'

export const toolSettings = group({
  webSearch: group({
    engines: setting(
      Type.Array(SearchEngineSchema, { maxItems: 20 }),
      'the search engines of [web search](web.md); without one, only providers that search themselves do, and the simulator',
      { default: [] },
    ),
    default: setting(
      nullable(Type.String({ minLength: 1 })),
      'the `name` of the engine for requests that name none; default: the first one',
    ),
    timeoutMs: setting(Milliseconds, 'time until an engine has answered; deep searches take half a minute', {
      default: 30_000,
    }),
  }),
  webFetch: group({
    allowHttp: setting(Type.Boolean(), 'true: also plain HTTP, to public addresses', { default: false }),
    allowPrivate: setting(
      Type.Boolean(),
      'true: any address and port, over HTTP too. Every model with the tool, and so every text that it reads, can then make the gateway read addresses in its own network',
      { default: false },
    ),
    maxBytes: setting(
      Type.Integer({ minimum: 1, maximum: 52_428_800 }),
      'for one page; a thread holds at most 16 times as much',
      { default: 10_485_760 },
    ),
    timeoutMs: setting(Milliseconds, 'for one page: name, redirects and bytes', { default: 10_000 }),
  }),
  mcp: group({
    allowPrivate: setting(
      Type.Boolean(),
      'true: the server tool [mcp](mcp.md) may reach any address and port, over HTTP too. Every caller with a key can then make the gateway send requests into its own network',
      { default: false },
    ),
  }),
  sandbox: group({
    engine: setting(
      oneOf(SANDBOX_ENGINES),
      '[where code of a model runs](sandbox.md): `embedded` has a shell and Python of its own, and needs the package `just-bash`; `bubblewrap` and `docker` need these programs; `auto` is `embedded`, or else `bubblewrap` where it works; `none` turns the sandbox off',
      sandboxEngine,
    ),
    network: setting(
      oneOf(['allowlist', 'disabled']),
      '`allowlist`: a request may name domains that its code reaches by HTTPS, where the engine holds such a list (bubblewrap); addresses are checked as those of pages (`tools.webFetch`). `disabled`: no code has a network, and such a request is 400',
      { default: 'allowlist' },
    ),
    timeoutMs: setting(
      Type.Integer({ minimum: 100, maximum: 50_000 }),
      'the longest run; a request may ask for less. Below the minute that one call of a tool has',
      { default: 25_000 },
    ),
    cpuSeconds: setting(
      Type.Integer({ minimum: 1, maximum: 600 }),
      'processor time of one run, all its threads and processes together',
      { default: 30 },
    ),
    memoryMb: setting(
      Type.Integer({ minimum: 256, maximum: 65_536 }),
      'memory of one run in MiB. Python in the embedded engine takes 200 before it runs a line',
      { default: 512 },
    ),
    running: setting(
      Type.Integer({ minimum: 1, maximum: 256 }),
      'runs at the same time, of one workspace half of them; more wait, and workspaces take turns. Together they may take `running` times `memoryMb`',
      { default: 2 },
    ),
    outputBytes: setting(
      Type.Integer({ minimum: 1_024, maximum: 4_194_304 }),
      'bytes of the output and of the errors of one command; what is beyond is dropped',
      { default: 262_144 },
    ),
    fileMb: setting(
      Type.Integer({ minimum: 1, maximum: 1_024 }),
      'MiB of all files of one container; the embedded engine keeps them in memory',
      { default: 16 },
    ),
    storeMb: setting(
      Type.Integer({ minimum: 16, maximum: 65_536 }),
      'MiB of the files of all containers; beyond it, the container that was used longest ago ends, of the workspace that holds most',
      { default: 256 },
    ),
    containers: setting(
      Type.Integer({ minimum: 1, maximum: 100_000 }),
      'containers in all; beyond it, one ends in the same way',
      { default: 1_000 },
    ),
    containersPerWorkspace: setting(
      Type.Integer({ minimum: 1, maximum: 10_000 }),
      'containers of one workspace; beyond it, its container that was used longest ago ends',
      { default: 50 },
    ),
  }),
  files: group({
    url: setting(
      Address,
      'where the bytes of [files](files.md) are: `file:FOLDER`, made with mode 0700, or `s3://BUCKET/PREFIX`. Several instances need a bucket, or a folder that all of them share',
      { default: 'file:./data/files', ...filesUrl },
    ),
    endpoint: setting(
      nullable(Address),
      'the address of a server that speaks S3, such as MinIO, with the bucket in the path. Without it, AWS in the region',
      filesEndpoint,
    ),
    region: setting(Type.String({ pattern: '^[a-z0-9-]{1,64}$' }), 'the region of the bucket', {
      default: 'us-east-1',
    }),
    accessKeyId: setting(
      nullable(Address),
      'the key id for the bucket; required with `s3://`. Write `${NAME}` to take it from the environment',
    ),
    secretAccessKey: setting(nullable(Address), 'the secret that belongs to it'),
    maxFileBytes: setting(
      Type.Integer({ minimum: 1_024, maximum: 1_073_741_824 }),
      'greatest file, in bytes; a larger one is answered 413. While it arrives it is on the disk of this machine, in `uploads` beside the spool: at most eight times as much for each serve thread, of which one API key has a quarter',
      { default: 104_857_600 },
    ),
    maxFiles: setting(
      Type.Integer({ minimum: 1, maximum: 10_000_000 }),
      'files that one workspace may have; more are answered 409',
      { default: 10_000 },
    ),
    maxBytes: setting(
      Type.Integer({ minimum: 1_024, maximum: Number.MAX_SAFE_INTEGER }),
      'bytes that the files of one workspace may have together; more are answered 409',
      { default: 10_737_418_240 },
    ),
  }),
})
