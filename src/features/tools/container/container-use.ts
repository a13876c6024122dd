/**
 * Code that the sandbox tools share: reads which container a request wants, opens it at the first call, and lists its
 * files.
 */
import { GatewayError, refuseField, toGatewayError } from '../../../base/errors.ts'
import { isFileId } from '../../../base/ids.ts'
import { recordOrEmpty, texts } from '../../../base/json.ts'
import type { Exchange } from '../../../exchange/exchange.ts'
import type { FunctionDeclaration, RequestedTool, ToolEntry } from '../../../exchange/server-tool.ts'
import type { Annotation } from '../../../protocol/parts.ts'
import type { FileRecord } from '../../../storage/files.ts'
import type { Files } from '../../files/files.ts'
import { type Code, type ContainerFile, DATA_FOLDER } from '../../sandbox/engine.ts'
import type { Container, ContainerOwner, ContainerTerms, RunReply, Sandbox } from '../../sandbox/sandbox.ts'
import type { SandboxSettings } from '../../sandbox/settings.ts'
import { scopeOf } from '../stored-texts.ts'
import { domainsRefusal } from '../web/domains.ts'

/** The container that an entry of the request asks for. */
export interface WantedContainer {
  /** Null for a new container. */
  readonly id: string | null
  readonly terms: ContainerTerms
  /** Files of the workspace that are copied into it. */
  readonly fileIds: readonly string[]
  /** Paths for errors. */
  readonly path: string
  readonly filesPath: string
}

/** Dependencies of the sandbox tools. */
export interface ContainerDeps {
  readonly sandbox: Sandbox
  readonly files: Pick<Files, 'find' | 'readWhole'>
  readonly config: { readonly tools: { readonly sandbox: SandboxSettings } }
}

interface ContainerRun {
  readonly containerId: string
  readonly reply: RunReply
  /** The files that the run created or changed, the latest first; at most MAX_CITED_FILES. */
  readonly files: readonly ContainerFileCitation[]
}

type ContainerFileCitation = Extract<Annotation, { type: 'container_file_citation' }>

/** The container of one entry, in one exchange. */
export interface ContainerUse {
  /**
   * Finds the files of the entry. Opens the container that it names, or checks that a new one is possible. Rejects with
   * a GatewayError that names the field at fault.
   */
  check(): Promise<void>
  /** Like `check`, but returns why an entry without special requirements cannot run here; null if it can. */
  refusal(): Promise<string | null>
  /** Describes the container and its files to the model. Call it after `check`, which finds the files. */
  describe(): Pick<FunctionDeclaration, 'description' | 'isForeign'>
  /** Runs code. Rejects with the reason of the signal, or with a GatewayError that the model may read. */
  run(codes: readonly Code[], bounds: RunBounds, signal: AbortSignal): Promise<ContainerRun>
}

interface RunBounds {
  readonly timeoutMs: number | null
  readonly maxOutputLength: number | null
}

/** The fields of an item about where code ran, and the files that it created or changed. */
export function runFields({ containerId, files }: ContainerRun): Readonly<Record<string, unknown>> {
  return { container_id: containerId, ...(files.length === 0 ? {} : { files }) }
}

/** The output of the only code of a run, and how it ended. */
export function onlyOutput({ reply: { outputs } }: ContainerRun) {
  const { stdout = '', stderr = '', exitCode = null, timedOut = false } = outputs[0] ?? {}
  return {
    stdout,
    stderr,
    exitCode: exitCode ?? (timedOut ? TIMED_OUT_EXIT_CODE : KILLED_EXIT_CODE),
    timedOut,
  }
}

/** The exit codes of `timeout` and, for a killed program, of a shell. */
const TIMED_OUT_EXIT_CODE = 124
export const KILLED_EXIT_CODE = 137

const DEFAULT_SLEEP_SECONDS = 900
const MAX_CITED_FILES = 10
const CONTAINER_ID = /^[\w-]{1,40}$/

/** Reads `environment` and `sleep_after_seconds`. @throws GatewayError that names the field */
export function wantedContainer(fields: Readonly<Record<string, unknown>>, path: string): WantedContainer {
  const environment = recordOrEmpty(fields['environment'])
  const environmentPath = `${path}.environment`
  const id = environment['container_id'] ?? null
  const isReference = environment['type'] === 'container_reference'
  if (isReference && id === null)
    throw refuseField(`${environmentPath}.container_id`, 'is required in a container_reference')
  if (id !== null && !(typeof id === 'string' && CONTAINER_ID.test(id)))
    throw refuseField(
      `${environmentPath}.container_id`,
      'must be 1 to 40 characters long and contain only letters, digits, _ and -',
    )
  const sleepSeconds = fields['sleep_after_seconds']
  return {
    id: isReference ? (id as string) : null,
    terms: {
      sleepAfterSeconds: typeof sleepSeconds === 'number' ? sleepSeconds : DEFAULT_SLEEP_SECONDS,
      allowedDomains: allowedDomains(environment['network_policy'], `${environmentPath}.network_policy`),
    },
    fileIds: texts(environment['file_ids']),
    path: environmentPath,
    filesPath: `${environmentPath}.file_ids`,
  }
}

/** The domains that a container may reach; null for no network. @throws GatewayError that names the field */
export function allowedDomains(policy: unknown, path: string): readonly string[] | null {
  const { type, allowed_domains: allowed } = recordOrEmpty(policy)
  if (type !== 'allowlist') return null
  const domains = texts(allowed)
  const domainsPath = `${path}.allowed_domains`
  if (domains.length === 0) throw refuseField(domainsPath, 'must name at least one domain')
  const refusal = domainsRefusal(domains)
  if (refusal !== null) throw refuseField(domainsPath, refusal)
  const withPath = domains.findIndex(domain => domain.replace(/^https?:\/\//i, '').includes('/'))
  if (withPath !== -1) throw refuseField(`${domainsPath}[${withPath}]`, 'must be a domain without a path')
  return domains
}

export function useContainer(
  { sandbox, files, config }: ContainerDeps,
  exchange: Exchange,
  wanted: WantedContainer,
): ContainerUse {
  const scope = scopeOf(exchange)
  const { organizationId, workspaceId, keyHash } = exchange.caller
  const owner: ContainerOwner = { organizationId, workspaceId }
  let openedContainer: Promise<Container> | null = null
  /** The files to copy, by name in the container. */
  let copiedFiles: ReadonlyMap<string, FileRecord> = new Map()
  let copying: Promise<void> | null = null

  /** After a failure, the next call tries again. */
  function open(): Promise<Container> {
    openedContainer ??= sandbox.open(owner, wanted.id, wanted.terms).catch(thrown => {
      openedContainer = null
      throw thrown
    })
    return openedContainer
  }

  /** Copies the files. One that the container already has under its name stays, because code may have changed it. */
  async function copyFiles(container: Container): Promise<void> {
    if (copiedFiles.size === 0) return
    const existingPaths = new Set((await container.list()).map(({ path }) => path))
    for (const [name, file] of copiedFiles) {
      if (!existingPaths.has(name))
        await container.write(name, await files.readWhole(file, maxBytes, keyHash))
    }
  }

  const maxBytes = config.tools.sandbox.fileMb * 1024 * 1024

  async function findFiles(): Promise<ReadonlyMap<string, FileRecord>> {
    const filesByName = new Map<string, FileRecord>()
    let bytes = 0
    for (const [index, id] of wanted.fileIds.entries()) {
      const path = `${wanted.filesPath}[${index}]`
      const file = isFileId(id) ? await files.find(scope, id) : null
      if (file === null)
        throw refuseField(path, 'must be the id of a file in this workspace (POST /v1/files)')
      bytes += file.bytes
      if (bytes > maxBytes)
        throw refuseField(
          path,
          `does not fit into a container, which has room for ${config.tools.sandbox.fileMb} MB (setting tools.sandbox.fileMb)`,
        )
      filesByName.set(filesByName.has(file.filename) ? `${id}-${file.filename}` : file.filename, file)
    }
    return filesByName
  }

  return {
    async check() {
      copiedFiles = await findFiles()
      try {
        if (wanted.id === null) await sandbox.check(wanted.terms)
        else await open()
      } catch (thrown) {
        const { code, message, retryAfterSeconds } = toGatewayError(thrown)
        const retry = retryAfterSeconds === undefined ? {} : { retryAfterSeconds }
        throw new GatewayError(code, `${wanted.path}: ${message}`, { ...retry, cause: thrown })
      }
    },
    async refusal() {
      const isPlain =
        wanted.id === null && wanted.terms.allowedDomains === null && wanted.fileIds.length === 0
      try {
        await this.check()
        return null
      } catch (thrown) {
        const { code, cause } = thrown as GatewayError
        if (!isPlain || code !== 'invalid_request') throw thrown
        return toGatewayError(cause).message
      }
    },
    describe() {
      const { allowedDomains: domains } = wanted.terms
      const network =
        domains === null
          ? 'It has no network.'
          : `It reaches these domains by HTTPS, and nothing else: ${domains.join(', ')}.`
      const memory = `It has ${config.tools.sandbox.memoryMb} MB of memory. ${network}`
      if (copiedFiles.size === 0) return { description: memory }
      const names = [...copiedFiles.keys()].map(name => `${DATA_FOLDER}/${name}`)
      return {
        description: `${memory} The user has put these files into it: ${names.join(', ')}.`,
        isForeign: true,
      }
    },
    async run(codes, bounds, signal) {
      const container = await open()
      copying ??= copyFiles(container).catch(thrown => {
        copying = null
        throw thrown
      })
      await copying
      const before = new Map((await container.list()).map(file => [file.path, file]))
      const reply = await container.run({ codes, ...bounds }, signal)
      const changedFiles = (await container.list()).filter(file => isChanged(file, before.get(file.path)))
      return {
        containerId: container.id,
        reply,
        files: changedFiles.slice(0, MAX_CITED_FILES).map(({ path }) => citation(container.id, path)),
      }
    },
  }
}

function isChanged(current: ContainerFile, before: ContainerFile | undefined): boolean {
  return before === undefined || before.changedMs !== current.changedMs || before.bytes !== current.bytes
}

function citation(containerId: string, path: string): ContainerFileCitation {
  const fullPath = `${DATA_FOLDER}/${path}`
  return {
    type: 'container_file_citation',
    container_id: containerId,
    file_id: `cfile_${Buffer.from(fullPath).toString('base64url')}`,
    filename: path.slice(path.lastIndexOf('/') + 1),
    start_index: 0,
    end_index: 0,
  }
}

/** The description of a tool, and the contents of its container. */
export function descriptionOf(
  purpose: string,
  use: ContainerUse | undefined,
): Pick<FunctionDeclaration, 'description' | 'isForeign'> {
  const description = use?.describe()
  return { ...description, description: [purpose, description?.description ?? ''].join(' ').trim() }
}

/** The settings of an entry: under `parameters`, or next to the type as providers write them. */
export function settingsOf(tool: RequestedTool): Readonly<Record<string, unknown>> {
  return tool.type.includes(':') ? recordOrEmpty(tool.parameters) : tool
}

export function settingsPath({ tool, path }: ToolEntry): string {
  return tool.type.includes(':') ? `${path}.parameters` : path
}

/** The limits that a call requests. Values that are not numbers of at least 1 are ignored. */
export function boundsOf(args: Readonly<Record<string, unknown>>): RunBounds {
  return { timeoutMs: countOf(args['timeout_ms']), maxOutputLength: countOf(args['max_output_length']) }
}

function countOf(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) && value >= 1 ? Math.floor(value) : null
}

/** Maximum commands of one call. */
const MAX_COMMANDS = 32

/** The commands of a call; null if there are none, too many, or values that are no strings. */
export function commandsOf({
  command,
  commands,
}: Readonly<Record<string, unknown>>): readonly string[] | null {
  const list = Array.isArray(commands) ? (commands as unknown[]) : [command]
  const strings = list.filter(command => typeof command === 'string')
  const isValid = strings.length === list.length && strings.length > 0 && strings.length <= MAX_COMMANDS
  return isValid ? strings : null
}

export const BAD_COMMANDS = `commands: must be an array of 1 to ${MAX_COMMANDS} strings`

/** The message for the model about a call that could not run. Throws the reason of the signal and internal errors. */
export function failureText(thrown: unknown, signal: AbortSignal): string {
  signal.throwIfAborted()
  if (thrown instanceof GatewayError && thrown.code !== 'internal') return thrown.message
  throw thrown
}
