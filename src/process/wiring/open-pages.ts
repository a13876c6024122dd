/** Pages of the admin port that are open to everybody with access to it: the reference and the guide. Main thread. */
import type { JsonSchema } from '../../api/openapi/json-schema.ts'
import { Reference, readerUrl } from '../../api/openapi/reference/reference.ts'
import type { Config } from '../config/settings.ts'
import { reachable } from '../start/ports.ts'
import { Guide } from './guide.ts'

export class OpenPages {
  readonly guide = new Guide()
  readonly #listen: Config['listen']
  readonly #port: number
  readonly #describe: () => Promise<string | null>
  /** Created on first use. */
  #reference: Reference | null = null

  /**
   * @param port the public one
   * @param describe gets the interface description as JSON from a serve thread; null: none serves
   */
  constructor(listen: Config['listen'], port: number, describe: () => Promise<string | null>) {
    this.#listen = listen
    this.#port = port
    this.#describe = describe
  }

  /** The reference for a reader who uses this host name of the admin port; null while no thread serves. */
  async reference(host: string | undefined): Promise<Buffer | null> {
    if (this.#reference === null) {
      const document = await this.#describe()
      if (document === null) return null
      this.#reference ??= new Reference(JSON.parse(document) as JsonSchema)
    }
    return this.#reference.page(this.#urlFor(host)).json
  }

  /**
   * The public port under a name that the reader can reach: if the gateway listens on all addresses, the one just used.
   */
  #urlFor(host: string | undefined): string {
    const { host: listenHost, tls } = this.#listen
    const hostname = host?.replace(/:\d+$/, '') ?? ''
    const fallback = reachable(listenHost)
    const listensEverywhere = fallback !== listenHost && hostname !== ''
    const name = listensEverywhere ? hostname : fallback.includes(':') ? `[${fallback}]` : fallback
    return readerUrl(`${name}:${this.#port}`, tls !== null)
  }
}
