/** Settings for server tools: `tools` in the configuration file. Pure. */
import { Type } from '@sinclair/typebox'
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
} from '../../base/settings/setting.ts'
import { SearchEngineSchema } from './list-rows.ts'

export const toolSettings = group({
  webSearch: group({
    engines: setting(
      Type.Array(SearchEngineSchema, { maxItems: 20 }),
      'the search engines of [web search](web.md); without one, only providers with their own search and the simulator can search',
      { default: [] },
    ),
    default: setting(
      nullable(Type.String({ minLength: 1 })),
      'the `name` of the engine for requests that name none; default: the first one',
    ),
    timeoutMs: setting(Milliseconds, "time limit for an engine's answer; deep searches take half a minute", {
      default: 30_000,
    }),
  }),
  webFetch: group({
    allowHttp: setting(Type.Boolean(), 'true: plain HTTP to public addresses is also allowed', {
      default: false,
    }),
    allowPrivate: setting(
      Type.Boolean(),
      'true: any address and port is allowed, also over HTTP. Every model with the tool, and so all text that it reads, can then make the gateway read from addresses in your internal network',
      { default: false },
    ),
    maxBytes: setting(
      Type.Integer({ minimum: 1, maximum: 52_428_800 }),
      'maximum size of one page; a thread keeps at most 16 times as much in memory',
      { default: 10_485_760 },
    ),
    timeoutMs: setting(
      Milliseconds,
      'time limit for one page, including name lookup, redirects and download',
      { default: 10_000 },
    ),
  }),
  mcp: group({
    allowPrivate: setting(
      Type.Boolean(),
      'true: the [mcp](mcp.md) server tool may reach any address and port, also over HTTP. Every caller with a key can then make the gateway send requests into your internal network',
      { default: false },
    ),
  }),
  sandbox: group({
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
  }),
  files: group({
    url: setting(
      Address,
      'where the bytes of [files](files.md) are stored: `file:FOLDER`, created with mode 0700, or `s3://BUCKET/PREFIX`. Several instances need a bucket, or a folder that all of them share',
      { default: 'file:./data/files', ...filesUrl },
    ),
    endpoint: setting(
      nullable(Address),
      'URL of an S3-compatible server such as MinIO, with the bucket in the path. If unset, AWS in `region`',
      filesEndpoint,
    ),
    region: setting(Type.String({ pattern: '^[a-z0-9-]{1,64}$' }), 'the region of the bucket', {
      default: 'us-east-1',
    }),
    accessKeyId: setting(
      nullable(Address),
      'the access key id for the bucket; required with `s3://`. Write `${NAME}` to take it from the environment',
    ),
    secretAccessKey: setting(nullable(Address), 'the secret of that access key'),
    maxFileBytes: setting(
      Type.Integer({ minimum: 1_024, maximum: 1_073_741_824 }),
      "maximum size of a file, in bytes; a larger one is rejected with 413. During the upload it is on this machine's disk, in `uploads` next to the spool: at most eight times this size per serve thread, and a quarter of that per API key",
      { default: 104_857_600 },
    ),
    maxFiles: setting(
      Type.Integer({ minimum: 1, maximum: 10_000_000 }),
      'maximum number of files per workspace; further ones are rejected with 409',
      { default: 10_000 },
    ),
    maxBytes: setting(
      Type.Integer({ minimum: 1_024, maximum: Number.MAX_SAFE_INTEGER }),
      'maximum total bytes of files per workspace; further ones are rejected with 409',
      { default: 10_737_418_240 },
    ),
  }),
})
