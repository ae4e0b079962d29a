import { createRoot } from "react-dom/client";
import { Voice } from "./Voice.jsx";

createRoot(document.getElementById("root")).render(<Voice server={import.meta.env.VITE_SERVER ?? "http://127.0.0.1:8000"} />);
