/**
 * The sandbox: containers in which a model's code runs, with files that persist between runs. A container belongs to
 * one workspace; others cannot see it. The contract is implemented by the containers themselves (containers.ts, main
 * thread) and by a channel to them (channel.ts, other threads).
 */
import type { Code, ContainerFile, RunOutput } from './engine.ts'

/** The owner of a container. */
export interface ContainerOwner {
  readonly organizationId: string
  readonly workspaceId: string | null
}

export interface ContainerTerms {
  /** A container that is unused for this long is deleted with its files. */
  readonly sleepAfterSeconds: number
  /** Domains that the code may reach by HTTPS; null for no network. */
  readonly allowedDomains: readonly string[] | null
}

export interface RunRequest {
  /** The codes run one after the other. */
  readonly codes: readonly Code[]
  /** Time limit for all codes together. The setting applies if this is null or larger. */
  readonly timeoutMs: number | null
  /** Maximum characters of stdout and of stderr of each code; null for the limit of the setting. */
  readonly maxOutputLength: number | null
}

export interface RunReply {
  /** One for each piece of code that has started; at least one. */
  readonly outputs: readonly RunOutput[]
  /** A note for the model about the end of the run, or null. */
  readonly notice: string | null
}

interface OpenedContainer {
  readonly id: string
  /** True if this call created it. */
  readonly isNew: boolean
}

/** The calls of the sandbox. Arguments and results are plain data for other threads. Rejections are GatewayErrors. */
export interface SandboxCalls {
  /** Rejects with `invalid_request` if no container can have these properties; the message names the setting. */
  check(terms: ContainerTerms): Promise<void>
  open(owner: ContainerOwner, id: string | null, terms: ContainerTerms): Promise<OpenedContainer>
  run(owner: ContainerOwner, id: string, run: RunRequest, signal: AbortSignal): Promise<RunReply>
  list(owner: ContainerOwner, id: string): Promise<readonly ContainerFile[]>
  read(owner: ContainerOwner, id: string, path: string): Promise<Uint8Array | null>
  write(owner: ContainerOwner, id: string, path: string, content: Uint8Array): Promise<void>
  end(owner: ContainerOwner, id: string): Promise<void>
}

export interface Container extends OpenedContainer {
  /** Rejects with the reason of the signal, with `not_found` if the container was deleted, or with `overloaded`. */
  run(run: RunRequest, signal: AbortSignal): Promise<RunReply>
  /** Regular files in `/mnt/data`, the latest change first. */
  list(): Promise<readonly ContainerFile[]>
  /** Null if there is no regular file at this path. */
  read(path: string): Promise<Uint8Array | null>
  /** Rejects with `payload_too_large` if there is no space, and with `invalid_request` for a bad path. */
  write(path: string, content: Uint8Array): Promise<void>
  end(): Promise<void>
}

export interface Sandbox {
  /** See SandboxCalls. */
  check(terms: ContainerTerms): Promise<void>
  /**
   * Opens the container with this id. Null creates one, and so does a new name that the client chose. Rejects with
   * `invalid_request` if the sandbox is not offered, `not_found`, `conflict` or `overloaded`.
   */
  open(owner: ContainerOwner, id: string | null, terms: ContainerTerms): Promise<Container>
}

export function sandboxOf(calls: SandboxCalls): Sandbox {
  return {
    check: terms => calls.check(terms),
    async open(owner, requestedId, terms) {
      const { id, isNew } = await calls.open(owner, requestedId, terms)
      return {
        id,
        isNew,
        run: (run, signal) => calls.run(owner, id, run, signal),
        list: () => calls.list(owner, id),
        read: path => calls.read(owner, id, path),
        write: (path, content) => calls.write(owner, id, path, content),
        end: () => calls.end(owner, id),
      }
    },
  }
}
