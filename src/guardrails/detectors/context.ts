/** The text before a hit, by which detectors tell a telephone number from an order number. Pure. */

/** The text before `start`, at most `reach` units (bounded by CONTEXT_CHARS of detector.ts), in lower case. */
export function before(text: string, start: number, reach: number): string {
  return text.slice(Math.max(0, start - reach), start).toLowerCase()
}

/** The names of numbers that are no personal data. */
const NUMBERED =
  /(?:order|invoice|inv|ticket|tracking|ref|reference|case|sku|isbn|issn|part|serial|model|batch|lot|version|build|commit|item|product|article|bestellung|rechnung|auftrag|commande|facture|pedido|factura|ordine)(?:\s?(?:nummer|number|no|nr|num|id|n°|nº))?[.:]?\s?[#:]?\s?$/

/** True if the text before `start` names an order, a part, a version or the like. */
export function isNumbered(text: string, start: number): boolean {
  const said = before(text, start, 32)
  return said.endsWith('#') || NUMBERED.test(said)
}
