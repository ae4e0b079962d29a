/** Where the library came from: its server, unless it came with a page's own files. */

/** The address of the server's root; null in the npm package, which comes from elsewhere. */
export const HOME: string | null = import.meta.env.MODE === "package" ? null : new URL(/* @vite-ignore */ ".", import.meta.url).href;
