/** The current catalogue of one thread. It is replaced while requests run. */
import { type Catalog, catalogOf, LiveCatalog } from '../../providers/catalog.ts'
import {
  type PackedCatalogue,
  type UnpackedCatalogue,
  unpackCatalogue,
  unpackInSlices,
} from '../../providers/shared-catalogue.ts'

export class CatalogueHolder {
  readonly catalog: LiveCatalog
  readonly #listeners: ((unpacked: UnpackedCatalogue, catalog: Catalog) => void)[] = []
  #unpacked: UnpackedCatalogue
  #waiting: PackedCatalogue | null = null
  #isUnpacking = false

  constructor(packed: PackedCatalogue) {
    this.#unpacked = unpackCatalogue(packed)
    this.catalog = new LiveCatalog(catalogOf(this.#unpacked.parts))
  }

  /** Calls the listener with the current catalogue, and with each later one. */
  follow(listener: (unpacked: UnpackedCatalogue, catalog: Catalog) => void): void {
    listener(this.#unpacked, catalogOf(this.#unpacked.parts))
    this.#listeners.push(listener)
  }

  /**
   * Unpacks a new catalogue between running requests. If several arrive in the meantime, only the last one is unpacked.
   */
  receive(packed: PackedCatalogue): void {
    this.#waiting = packed
    if (!this.#isUnpacking) void this.#unpackAll()
  }

  async #unpackAll(): Promise<void> {
    this.#isUnpacking = true
    try {
      while (this.#waiting !== null) {
        const packed = this.#waiting
        this.#waiting = null
        this.#unpacked = await unpackInSlices(packed, this.#unpacked, pause)
        const catalog = catalogOf(this.#unpacked.parts)
        this.catalog.replace(catalog)
        for (const listener of this.#listeners) listener(this.#unpacked, catalog)
      }
    } finally {
      this.#isUnpacking = false
    }
  }
}

function pause(): Promise<void> {
  return new Promise(resolve => setImmediate(resolve))
}
