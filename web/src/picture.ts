/** Pictures as the wire carries them: JPEGs as data URIs, made smaller until they fit. */

import { Problem } from "./problem";

/** The most characters of a camera's still, as a data URI: sharp enough, and one message of a data channel. */
export const STILL_CHARS = 48_000;

const SIDES = [1024, 768, 512, 384, 256]; // the longer side, in pixels
const QUALITY = 0.75;

/** A picture that the user chose or pasted. Throws a Problem when the browser can't read it. */
export async function pictureOf(file: Blob, maxBytes: number): Promise<string> {
  let bitmap: ImageBitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Problem("refused", "This file is no picture that the browser can read: choose a PNG or a JPEG.");
  }
  const picture = jpegOf(bitmap, bitmap.width, bitmap.height, maxBytes);
  bitmap.close();
  return picture;
}

/** The source as a JPEG's data URI of at most `maxBytes` characters, or as small as it gets. */
export function jpegOf(source: CanvasImageSource, width: number, height: number, maxBytes: number): string {
  let picture = "";
  for (const side of SIDES) {
    const scale = Math.min(1, side / Math.max(width, height));
    picture = drawn(source, Math.round(width * scale), Math.round(height * scale)).toDataURL("image/jpeg", QUALITY);
    if (picture.length <= maxBytes) break;
  }
  return picture;
}

function drawn(source: CanvasImageSource, width: number, height: number): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, width);
  canvas.height = Math.max(1, height);
  canvas.getContext("2d")!.drawImage(source, 0, 0, canvas.width, canvas.height);
  return canvas;
}
